"""`daybreak scale`: how many workers an autoscaler should run."""

from __future__ import annotations

from datetime import timedelta

import click

from daybreak.cli.options import DURATION, NAME, Whole, as_json
from daybreak.cli.output import say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.errors import BadInput


@click.command("scale", short_help="Print how many workers are wanted.")
@click.option("--slots", type=Whole(1), default=1, show_default=True, help="Jobs that one worker runs at once.")
@click.option(
    "--within", type=DURATION, default="10m", show_default=True, help="By when all waiting jobs should be done."
)
@click.option("--min", "least", type=Whole(0), default=0, show_default=True, help="The least number.")
@click.option("--max", "most", type=Whole(1), default=100, show_default=True, help="The greatest number.")
@click.option("--queue", type=NAME, help="Count only this queue.")
@as_json
def command(slots: int, within: timedelta, least: int, most: int, queue: str | None, as_json: bool) -> int:
    """Print how many workers are wanted, for an autoscaler: from the jobs that wait and run, and from how long attempts
    have taken. Jobs that wait for a time are not counted.

    Example:
      daybreak scale --slots 4 --within 15m --max 40

    """
    if within <= timedelta() or least > most:
        raise BadInput("--within must be longer than 0, and --min at most --max")

    async def show(client: Client) -> int:
        from daybreak.sqs.scale import load_of, wanted  # noqa: PLC0415

        found = wanted(await load_of(client.store, queue), slots=slots, within=within, least=least, most=most)
        if as_json:
            say_json({"workers": found.workers, "waiting": found.load.waiting, "running": found.load.running,
                      "seconds_per_attempt": found.load.seconds, "reason": found.reason})  # fmt: skip
        else:
            say(str(found.workers))
        return 0

    return session().run(show)


store_options(command)

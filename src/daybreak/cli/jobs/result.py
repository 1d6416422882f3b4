"""`daybreak jobs result`: prints what a job returned."""

from __future__ import annotations

from datetime import timedelta

import click

from daybreak.cli import completions
from daybreak.cli.jobs.show import found
from daybreak.cli.options import DURATION
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.cli.wait import say_outcome, wait_for
from daybreak.client.client import Client


@click.command(short_help="Print the result of a job.")
@click.argument("job_id", metavar="ID", shell_complete=completions.jobs)
@click.option("--wait", is_flag=True, help="Wait until the job has ended.")
@click.option("--timeout-wait", type=DURATION, help="Wait at most this long, for example 30s.")
@click.option("--raw", is_flag=True, help="Print a string without quotes.")
def result(job_id: str, wait: bool, timeout_wait: timedelta | None, raw: bool) -> int:
    """Print the result of a job as JSON. The exit code is 1 if the job failed, and 5 if it has not ended.

    Examples:
      daybreak jobs result last
      daybreak jobs result 0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d --wait --timeout-wait 10m

    """

    async def print_result(client: Client) -> int:
        job = await found(client, job_id)
        if not job.is_final and (wait or timeout_wait is not None):
            job = await wait_for(client, job.id, timeout_wait)
        return say_outcome(await session().with_result(client, job), raw=raw)

    return session().run(print_result)


store_options(result)

"""`daybreak schedules pause | resume | run-now | remove`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from daybreak.api.schedules.info import schedule_info
from daybreak.api.views.schedule import schedule_view
from daybreak.cli import completions
from daybreak.cli.options import NAME, as_json
from daybreak.cli.output import note, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.client.schedule_changes import (
    find_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule_now,
)
from daybreak.core.text import safe

_name = click.argument("name", type=NAME, shell_complete=completions.schedules)
_names = click.argument(
    "names", type=NAME, metavar="NAME...", nargs=-1, required=True, shell_complete=completions.schedules
)


@click.command(short_help="Fire no more ticks of schedules.")
@_names
@as_json
def pause(names: tuple[str, ...], as_json: bool) -> int:
    """Fire no more ticks of these schedules until they are resumed. Jobs that exist are not affected.

    Example:
      daybreak schedules pause nightly

    """
    return _change(names, pause_schedule, "paused", as_json=as_json)


@click.command(short_help="Fire ticks of paused schedules again.")
@_names
@as_json
def resume(names: tuple[str, ...], as_json: bool) -> int:
    """Fire ticks of paused schedules again, from now on: those of the pause are not caught up.

    Example:
      daybreak schedules resume nightly

    """
    return _change(names, resume_schedule, "resumed", as_json=as_json)


@click.command("run-now", short_help="Submit a job of a schedule now.")
@_name
@as_json
def run_now(name: str, as_json: bool) -> int:
    """Submit a job of a schedule now, besides its ticks, and print its id. If the schedule skips what overlaps and its
    last job has not ended, that is the job, and nothing is submitted.

    Example:
      daybreak schedules run-now nightly

    """

    async def run(client: Client) -> int:
        job, is_new = await run_schedule_now(client, name)
        if as_json:
            say_json({"schedule": name, "job": job, "is_new": is_new})
            return 0
        say(job)
        if not is_new:
            note(f"this job of {safe(name)} has not ended, so no other one was submitted")
        return 0

    return session().run(run)


@click.command(short_help="Remove schedules.")
@_names
@as_json
def remove(names: tuple[str, ...], as_json: bool) -> int:
    """Remove schedules. Their jobs stay. A schedule that the code declares is there again when a worker starts: remove
    it from the code too, or pause it.

    Example:
      daybreak schedules remove nightly

    """

    async def run(client: Client) -> int:
        for name in names:
            await find_schedule(client, name)
        removed = [await remove_schedule(client, name) for name in names]
        if as_json:
            say_json({"removed": list(names)})
            return 0
        for one in removed:
            say(safe(f"{one.name} is removed."))
            if one.schedule.app is not None:
                app = f"app {one.schedule.app}" if one.schedule.app else "an app without a name"
                note(safe(f"the code of {app} declares {one.name}: a worker that starts writes it again"))
        return 0

    return session().run(run)


for made in (pause, resume, run_now, remove):
    store_options(made)


def _change(
    names: tuple[str, ...], change: Callable[[Client, str], Awaitable[object]], done: str, *, as_json: bool
) -> int:
    async def run(client: Client) -> int:
        for name in names:
            await find_schedule(client, name)
        for name in names:
            await change(client, name)
            if not as_json:
                say(safe(f"{name} is {done}."))
        if as_json:
            say_json({"schedules": [schedule_view(await schedule_info(client, name)) for name in names]})
        return 0

    return session().run(run)

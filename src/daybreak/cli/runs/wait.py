"""`daybreak runs wait`: waits for the end of a run, with its progress on the terminal."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from daybreak.cli import completions
from daybreak.cli.errors import Exit
from daybreak.cli.options import DURATION, NAME, as_json
from daybreak.cli.output import note, say, say_json
from daybreak.cli.root import store_options
from daybreak.cli.runs.found import find_run, no_worker_note
from daybreak.cli.runs.show import next_step, points_text
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.core.text import lasted, safe
from daybreak.runs.run_info import RunInfo


@click.command(short_help="Wait until a run has ended.")
@click.argument("name", type=NAME, shell_complete=completions.runs)
@click.option("--timeout", type=DURATION, help="Wait at most this long, for example 8h.")
@as_json
def wait(name: str, timeout: timedelta | None, as_json: bool) -> int:
    """Wait until a run has ended or pauses, and show its progress. Ctrl-C ends the waiting; the run goes on.

    The exit code is 0 if every point completed, 1 if some failed, were cancelled or wait because the run is paused, and
    5 if the run has not ended in time.

    Example:
      daybreak runs wait overnight --timeout 8h

    """

    async def apply(client: Client) -> int:
        run = await find_run(client, name)
        if hint := await no_worker_note(client, await run.ainfo()):
            note(hint)
        info = await run.await_(timeout, progress=not as_json and sys.stderr.isatty())
        if as_json:
            say_json(info.as_dict())
        else:
            say_end(info)
        return exit_code(info)

    return session().run(apply)


store_options(wait)


def say_end(info: RunInfo) -> None:
    """Print how a run ended, and what to do next."""
    took = f" after {lasted(info.finished_at - info.started_at)}" if info.finished_at else ""
    say(f"Run {safe(info.name)} is {info.state}{took}: {points_text(info)}.")
    if info.note:
        say(safe(info.note))
    say(next_step(info))


def exit_code(info: RunInfo) -> int:
    """0 if every point completed, else 1. Points that are no longer in the sweep may be cancelled."""
    is_complete = info.jobs[State.FAILED] == 0 and info.jobs[State.COMPLETED] >= info.total
    is_complete = is_complete and info.is_over and info.jobs[State.CANCELLED] <= info.orphaned
    return int(Exit.OK if is_complete else Exit.FAILED)

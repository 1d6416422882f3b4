"""Finds the run that a command names, and whether somebody works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daybreak.cli.job_selector import position_of
from daybreak.cli.session import session
from daybreak.cli.wait import no_worker_hint
from daybreak.client.client import Client
from daybreak.core.model import State
from daybreak.runs.run_info import RunInfo
from daybreak.tasks.command_tasks import COMMAND_TASKS

if TYPE_CHECKING:
    from daybreak.runs.run import Run


async def find_run(client: Client, name: str) -> Run:
    """A handle on the run; `last` is the newest run, and `last~2` the third newest, unless a run has this very name.
    RunNotFound says what comes closest."""
    from daybreak.runs import client_runs  # noqa: PLC0415 - the list of runs does not need it, and is asked for often
    from daybreak.runs.record import run_names  # noqa: PLC0415

    position = position_of(name)
    if position is not None:
        newest = await run_names(client.store)
        if name not in newest and position < len(newest):
            name = newest[position]
    settings = session().settings
    return await client_runs.find_run(client, name, (settings.files, settings.url))


async def no_worker_note(client: Client, info: RunInfo) -> str | None:
    """A sentence if points of the run wait and no live worker can run them, else None."""
    if info.state != "running" or info.jobs[State.RUNNING]:
        return None
    hint = await no_worker_hint(client, info.task, info.version, info.queue)
    if hint is None:
        return None
    hint = hint.replace("so the job waits", "so the run waits")
    return f"{hint} (or give the same sweep again)" if info.task in COMMAND_TASKS else hint

"""The last line below a list of jobs: how many there are, and the command to use next."""

from __future__ import annotations

from collections.abc import Sequence

from daybreak.api.worker_info import live_workers
from daybreak.cli.options import Where
from daybreak.cli.session import session
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import UNFINISHED, Job, State
from daybreak.core.text import number, safe
from daybreak.tasks.command_tasks import COMMAND_TASKS, EXEC

_ACTIONS = {
    State.FAILED: ("Retry with", "retry"),
    State.SUSPENDED: ("Resume {} with", "resume"),
}


async def next_step(client: Client, where: Where, jobs: list[Job], more: Sequence[str]) -> str:
    """`1 failed job in mail. Retry with: daybreak jobs retry --queue mail --state failed`. `more` are the options
    for the next page, if there is one. The command for it gets its own line if another command comes first."""
    summary = await _how_many(client, where, len(jobs), is_all=not more)
    them = "it" if len(jobs) == 1 and not more else "them"
    next_page = f"Next page: {session().command('jobs', *where.words(), *more)}" if more else ""
    state = where.filter.states[0] if len(where.filter.states) == 1 else None
    if not jobs:
        return f"{summary} {next_page}"
    if state in _ACTIONS:
        words, action = _ACTIONS[state]
        summary += f" {words.format(them)}: {session().command('jobs', action, *where.words())}"
        return f"{summary}\n{next_page}".rstrip()
    if any(job.state in UNFINISHED for job in jobs) and not await live_workers(client):
        queues = {job.spec.queue for job in jobs if job.state in UNFINISHED and job.spec.task in COMMAND_TASKS}
        only = all(job.spec.task in COMMAND_TASKS for job in jobs if job.state in UNFINISHED)
        start = session().start_for(EXEC, *queues) if only else session().start_worker()
        summary += f" No worker is running. Start one with: {start}"
        return f"{summary}\n{next_page}".rstrip()
    if next_page:
        return f"{summary} {next_page}"
    if state is State.RUNNING:
        return f"{summary} Watch {them} with: {session().command('top')}"
    return f"{summary} Show one with: {session().command('jobs', 'show', jobs[0].id)}"


async def _how_many(client: Client, where: Where, shown: int, *, is_all: bool) -> str:
    if is_all:
        return f"{where.jobs(shown)}."
    if where.filter.is_timed and not shown:
        return f"No {where.jobs()} among the jobs checked so far."
    if not where.filter.is_tallied:  # a count would have to read every job
        return f"The first {where.jobs(shown)}."
    total = sum((await client.count(**where.filter.where())).values())
    return f"{number(shown)} of {where.jobs(total)}."


async def nothing_found(client: Client, where: Where) -> str:
    """What to print if no job matches: with the closest name if the queue or the task does not exist."""
    message = f"No {where.jobs()}."
    tallies = await client.tallies()
    for name, known in (("queue", {t.queue for t in tallies}), ("task", {t.task for t in tallies})):
        wanted = getattr(where.filter, name)
        hint = closest(wanted, known) if wanted and wanted not in known else None
        if hint:
            return f"{message} There is no {name} {safe(wanted)!r}; did you mean {safe(hint)!r}?"
    if where.filter.is_empty:
        return f"{message} Submit one with: {session().command('submit', 'TASK', 'name=value')}"
    return message

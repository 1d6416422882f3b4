"""What a list of jobs ends with: how many there are, and the command that goes on from here."""

from __future__ import annotations

from collections.abc import Sequence

from daybreak.api.worker_info import live_workers
from daybreak.cli.options import Where
from daybreak.cli.session import COMMANDS, session
from daybreak.cli.text import number, safe
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import UNFINISHED, Job, State

_ACTIONS = {
    State.FAILED: ("Retry with", "retry"),
    State.SUSPENDED: ("Let {} go on with", "resume"),
}


async def next_step(client: Client, where: Where, jobs: list[Job], more: Sequence[str]) -> str:
    """`1 failed job in mail. Retry with: daybreak jobs retry --queue mail --state failed`. `more` are the options that
    give the next page, if there is one; that goes to a line of its own where something else is to be done first."""
    told = await _how_many(client, where, len(jobs), is_all=not more)
    them = "it" if len(jobs) == 1 and not more else "them"
    going_on = f"More with: {session().command('jobs', *where.words(), *more)}" if more else ""
    state = where.states[0] if len(where.states) == 1 else None
    if not jobs:
        return f"{told} {going_on}"
    if state in _ACTIONS:
        words, action = _ACTIONS[state]
        told += f" {words.format(them)}: {session().command('jobs', action, *where.words())}"
        return f"{told}\n{going_on}".rstrip()
    if any(job.state in UNFINISHED for job in jobs) and not await live_workers(client):
        queues = {job.spec.queue for job in jobs if job.state in UNFINISHED and job.spec.task == COMMANDS}
        only = all(job.spec.task == COMMANDS for job in jobs if job.state in UNFINISHED)
        start = session().start_for(COMMANDS, *queues) if only else session().start_worker()
        told += f" No worker is there to run {them}. Start one with: {start}"
        return f"{told}\n{going_on}".rstrip()
    if going_on:
        return f"{told} {going_on}"
    if state is State.RUNNING:
        return f"{told} Watch {them} with: {session().command('top')}"
    return f"{told} Look at one with: {session().command('jobs', 'show', jobs[0].id)}"


async def _how_many(client: Client, where: Where, shown: int, *, is_all: bool) -> str:
    if is_all:
        return f"{where.jobs(shown)}."
    if where.is_timed and not shown:
        return f"No {where.jobs()} among those that were looked at so far."
    if not where.is_tallied:  # counting would look at every job
        return f"The first {where.jobs(shown)}."
    total = sum((await client.count(**where.asked)).values())
    return f"{number(shown)} of {where.jobs(total)}."


async def nothing_found(client: Client, where: Where) -> str:
    told = f"No {where.jobs()}."
    tallies = await client.tallies()
    for name, known in (("queue", {t.queue for t in tallies}), ("task", {t.task for t in tallies})):
        said = getattr(where, name)
        if said and said not in known and (hint := closest(said, known)):
            return f"{told} There is no {name} {safe(said)!r}; did you mean {safe(hint)!r}?"
    if where.is_empty:
        return f"{told} Submit one with: {session().command('submit', 'TASK', 'name=value')}"
    return told

"""Finds running jobs that will probably never end: far longer than usual without a limit, or deaf to a cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.client.duration_stats import execution_of
from daybreak.core.model import Job, State
from daybreak.core.text import counted, lasted, safe
from daybreak.policy.durations import classes_of, quantile
from daybreak.store.protocol import Finding

MIN_SEEN: Final = 20  # ended attempts; with fewer, nothing is known about the usual duration
TIMES_LONGER: Final = 10  # than 99 % of the ended attempts of the task
MIN_RUN: Final = timedelta(minutes=10)
STOP_WITHIN: Final = timedelta(minutes=5)  # in which a job that was asked to stop should have ended
_MAX_CHECKED: Final = 1000  # running jobs
_MAX_IDS: Final = 5  # in a command


async def about_stuck(client: Client, session: Session, now: datetime) -> AsyncIterator[Finding]:
    """Jobs whose lease has expired are not reported here: that is a finding of its own."""
    page = await client.find(state=State.RUNNING, limit=_MAX_CHECKED)
    running = [
        job for job in page.jobs if job.spec.holder is None and not job.detached and (job.leased_until or now) >= now
    ]
    usual: dict[str, timedelta | None] = {}
    endless: list[Job] = []
    deaf: list[Job] = []
    for job in running:
        if job.cancelling:
            if await _asked_before(client, job, now - STOP_WITHIN):
                deaf.append(job)
            continue
        options = job.spec.options
        if options.timeout is not None or options.hang is not None or job.started_at is None:
            continue
        subject = execution_of(job.spec)
        if subject not in usual:
            usual[subject] = await _usual(client, subject)
        longest = usual[subject]
        if longest is not None and now - job.started_at > max(TIMES_LONGER * longest, MIN_RUN):
            endless.append(job)
    for task in dict.fromkeys(job.spec.task for job in endless):
        jobs = [job for job in endless if job.spec.task == task]
        yield _endless(jobs, usual[execution_of(jobs[0].spec)] or timedelta(), session, now)
    if deaf:
        ids = [job.id for job in deaf[:_MAX_IDS]]
        yield Finding(
            f"{counted(len(deaf), 'running job was', 'running jobs were')} asked to stop more than 5 min ago, and "
            f"{'has' if len(deaf) == 1 else 'have'} not ended",
            cure=f"take them from their workers, which cancels them: {session.command('jobs', 'release', *ids)}",
        )


def _endless(jobs: list[Job], usual: timedelta, session: Session, now: datetime) -> Finding:
    first = min(jobs, key=lambda job: job.started_at or now)
    ids = [job.id for job in jobs[:_MAX_IDS]]
    more = "" if len(jobs) == 1 else f", and so are {counted(len(jobs) - 1, 'other')} of this task"
    return Finding(
        f"the job {first.id} of {safe(first.spec.task)!r} has run for {lasted(now - (first.started_at or now))}, while "
        f"99 % of its kind end within {lasted(usual)}, and it has no time limit: it is probably stuck{more}",
        cure=f"look at it: {session.command('why', first.id)}; return it to its queue: "
        f"{session.command('jobs', 'release', *ids)}; and give the task a limit, @app.task(timeout=...) or hang=...",
    )


async def _asked_before(client: Client, job: Job, when: datetime) -> bool:
    asked = [event.at for event in await client.history(job.id) if event.kind == "cancel_requested"]
    return bool(asked) and asked[-1] < when


async def _usual(client: Client, subject: str) -> timedelta | None:
    """Within this time 99 % of the ended attempts of the last day ended; None if there are too few."""
    durations, _ = await client.durations.read(subject)
    classes = classes_of(durations)
    if sum(classes.values()) < MIN_SEEN:
        return None
    return timedelta(seconds=quantile(classes, 0.99))

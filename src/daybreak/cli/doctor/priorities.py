"""Finds urgent jobs that wait while less urgent ones start, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from daybreak.api.locks.lock_job import QUEUE as LOCKS
from daybreak.api.why import explain, read_situation
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.model import Job, State
from daybreak.core.text import ago, lasted, priority_name, safe
from daybreak.store.protocol import Finding

MIN_WAIT: Final = timedelta(minutes=1)  # a shorter wait is no surprise
_MAX_CHECKED: Final = 1000  # running jobs
_MAX_LANES: Final = 100  # queues and priorities whose first job is read
# Other findings report these.
_REPORTED: Final = frozenset({"paused", "no worker", "unknown task", "unserved queue", "draining"})


async def about_priorities(client: Client, session: Session, now: datetime) -> AsyncIterator[Finding]:
    """At most one finding for each queue. Only queued jobs count: a job that waits for a resource lets others pass."""
    page = await client.find(state=State.RUNNING, limit=_MAX_CHECKED)
    running = [job for job in page.jobs if job.spec.holder is None]
    least = max((job.priority for job in running), default=0)
    lanes = {(tally.queue, tally.priority) for tally in await client.tallies(state=State.QUEUED) if tally.n}
    wanted = [lane for lane in sorted(lanes) if lane[1] < least and lane[0] != LOCKS]
    reported: set[str] = set()
    for queue, priority in wanted[:_MAX_LANES]:
        if queue in reported:
            continue
        head = await client.find(queue=queue, state=State.QUEUED, priority=priority, limit=1)
        for job in head.jobs:
            finding = await _passed_over(client, job, running, session, now)
            if finding is not None:
                reported.add(queue)
                yield finding


async def _passed_over(client: Client, job: Job, running: list[Job], session: Session, now: datetime) -> Finding | None:
    try:
        since = max(event.at for event in await client.history(job.id))
        later = [
            other
            for other in running
            if other.priority > job.priority and (other.started_at or since) - since > MIN_WAIT
        ]
        if not later:
            return None
        situation = await read_situation(client, job.id)
    except JobNotFound:  # it has ended and was removed meanwhile
        return None
    cause = explain(situation).causes[0]
    if situation.job.state is not State.QUEUED or cause.kind in _REPORTED:
        return None
    other = max(later, key=lambda one: one.started_at or since)
    text, command = cause.text, cause.command or ("why", job.id)
    if situation.queue.discipline == "aging" and other.spec.queue == job.spec.queue:
        patience = lasted(situation.queue.patience)
        text = f"the queue is aging: a job that waits {patience} longer counts as one priority more urgent"
        command = ("queues", "set", job.spec.queue, "discipline=fifo")
    return Finding(
        f"the job {job.id} of {safe(job.spec.task)!r}, priority {priority_name(job.priority)}, has waited "
        f"{lasted(now - since)} in the queue {safe(job.spec.queue)!r}, but the job {other.id}, priority "
        f"{priority_name(other.priority)}, started {ago(other.started_at, now)}: {safe(text)}",
        cure=f"{session.command(*command)}; all causes: {session.command('why', job.id)}",
    )

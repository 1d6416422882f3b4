"""Reads a job's events: its attempts, who ran them, how long it waited and how long it ran."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import FINAL, Job, Reason, State
from daybreak.sqs.deliveries import DeliveryRecord, is_dispatcher

ATTEMPT_ENDS: Final = frozenset({
    "retrying", "released", "completed", "failed", "cancelled", "suspended", "lease_expired"
})  # fmt: skip


_WORKER_ID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")  # a person's name does not end so


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt at a job. `ended` is the event that ended it, or empty while it runs."""

    n: int
    worker: str
    started_at: datetime
    ended_at: datetime | None = None
    ended: str = ""
    error: str = ""


def attempts(history: Sequence[Event]) -> list[Attempt]:
    """The attempts in a job's history, the first one first."""
    found: list[Attempt] = []
    for event in history:
        if event.kind == "started":
            found.append(Attempt(n=event.attempt or 0, worker=event.by, started_at=event.at))
        elif event.kind in ATTEMPT_ENDS and found and found[-1].ended_at is None:
            last = found.pop()
            found.append(
                Attempt(
                    n=last.n,
                    worker=_ran_by(last.worker, event),
                    started_at=last.started_at,
                    ended_at=event.at,
                    ended=event.kind.replace("_", " "),
                    error=event.error or event.note,
                )
            )
    return found


def _ran_by(claimed_by: str, end: Event) -> str:
    """Who ran an attempt. What a dispatcher claims, a remote worker runs, and reports how it ended. Whoever reports
    that the attempt was lost, or that nobody began it, did not run it."""
    is_report = end.kind in ("completed", "failed", "retrying") and end.reason is not Reason.LOST
    if is_dispatcher(claimed_by) and is_report and not end.error.startswith("Lost:") and _WORKER_ID.search(end.by):
        return end.by
    return claimed_by


def runner_of(job: Job, history: Sequence[Event], delivery: DeliveryRecord | None) -> str | None:
    """The worker that runs the job, or ran it last. For a job that was sent to remote workers it is the remote one, and
    None while nobody has begun it."""
    if delivery is not None:
        return delivery.worker
    if not is_dispatcher(job.worker):
        return job.worker
    tries = attempts(history)
    return tries[-1].worker if tries and job.state is not State.RUNNING else None


def waited_for(job: Job, history: Sequence[Event], now: datetime) -> timedelta:
    """The time from when the job could start until its first attempt. Without an attempt, until it ended or until
    now."""
    spec = job.spec
    could_start = job.created_at + spec.delay if spec.delay else max(job.created_at, spec.run_at or job.created_at)
    first = next((event.at for event in history if event.kind == "started"), job.started_at)
    return max((first or job.finished_at or now) - could_start, timedelta())


def ran_for(job: Job, history: Sequence[Event], now: datetime) -> timedelta | None:
    """How long the latest attempt ran, or has run so far. None if there was no attempt."""
    tries = attempts(history)
    if tries:
        started_at, ended_at = tries[-1].started_at, tries[-1].ended_at
    elif job.started_at is not None:
        started_at, ended_at = job.started_at, None
        if job.state in FINAL:
            ended_at = job.finished_at
    else:
        return None
    if ended_at is None and job.state is State.RUNNING:
        ended_at = now
    if ended_at is None:
        return None
    return max(ended_at - started_at, timedelta())

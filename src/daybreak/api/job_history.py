"""Reads a job's events: its attempts, how long it waited and how long it ran."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import FINAL, Job, State

ATTEMPT_ENDS: Final = frozenset({
    "retrying", "released", "completed", "failed", "cancelled", "suspended", "lease_expired"
})  # fmt: skip


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
                    worker=last.worker,
                    started_at=last.started_at,
                    ended_at=event.at,
                    ended=event.kind.replace("_", " "),
                    error=event.error or event.note,
                )
            )
    return found


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

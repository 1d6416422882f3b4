"""A job as data: what `--json` prints. Secrets are masked, durations are seconds, instants ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from daybreak import values
from daybreak.core.events import Event
from daybreak.core.model import FINAL, Job, State

ENDS = frozenset({"retrying", "released", "completed", "failed", "cancelled", "suspended", "lease_expired"})


class Attempt(Struct, frozen=True, kw_only=True):
    """One try at a job, as its history tells it."""

    n: int
    worker: str
    started_at: datetime
    ended_at: datetime | None = None
    ended: str = ""
    error: str = ""


def job_data(job: Job, history: Sequence[Event], now: datetime) -> dict[str, Any]:
    """All fields of a job, in the order in which they are documented."""
    spec = job.spec
    waited, ran = waited_for(job, history, now), ran_for(job, history, now)
    return {
        "id": job.id,
        "task": spec.task,
        "version": spec.version,
        "queue": spec.queue,
        "priority": job.priority,
        "state": job.state.value,
        "reason": job.reason.value if job.reason else None,
        "attempt": job.attempt,
        "max_attempts": spec.options.retry.attempts,
        "retries": max(job.attempt - 1, 0),
        "args": shown(spec.args),
        "result": None if job.result is None else shown(job.result),
        "error": _error(job),
        "progress": job.progress,
        "fence": job.fence,
        "run": spec.run,
        "owner": spec.owner,
        "key": spec.key,
        "tags": list(spec.tags),
        "meta": dict(spec.meta),
        "resources": [{"resource": need.resource, "slots": need.slots} for need in spec.options.resources],
        "worker": job.worker,
        "cached_from": None,
        "created_at": instant(job.created_at),
        "updated_at": instant(history[-1].at if history else job.created_at),
        "run_at": instant(job.run_at),
        "started_at": instant(job.started_at),
        "finished_at": instant(job.finished_at),
        "expires_at": instant(job.expires_at),
        "waited_for": waited.total_seconds(),
        "ran_for": None if ran is None else ran.total_seconds(),
    }


def _error(job: Job) -> dict[str, Any] | None:
    failure = job.failure
    if failure is None:
        return None
    return {
        "kind": failure.kind,
        "message": failure.message,
        "traceback": failure.traceback,
        "attempt": failure.attempt,
    }


def shown(data: bytes) -> object:
    """Stored arguments or a result, plain and with secrets masked; what cannot be read is told as text."""
    try:
        return values.shown(data)
    except (ValueError, TypeError, KeyError, RecursionError):
        return data.decode("utf-8", "backslashreplace")


def instant(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat().replace("+00:00", "Z")


def event_data(event: Event) -> dict[str, Any]:
    said = {
        name: getattr(event, name) for name in ("n", "kind", "by", "state", "reason", "priority", "attempt", "fence")
    }
    said |= {"at": instant(event.at), "run_at": instant(event.run_at), "note": event.note, "error": event.error}
    return {name: value for name, value in said.items() if value not in (None, "")}


# -- what a history tells ----------------------------------------------------------------------------------------------


def attempts(history: Sequence[Event]) -> list[Attempt]:
    found: list[Attempt] = []
    for event in history:
        if event.kind == "started":
            found.append(Attempt(n=event.attempt or 0, worker=event.by, started_at=event.at))
        elif event.kind in ENDS and found and found[-1].ended_at is None:
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
    """From when it might have started to when it first did; until now, or its end, if it never did."""
    spec = job.spec
    could = job.created_at + spec.delay if spec.delay else max(job.created_at, spec.run_at or job.created_at)
    first = next((event.at for event in history if event.kind == "started"), job.started_at)
    return max((first or job.finished_at or now) - could, timedelta())


def ran_for(job: Job, history: Sequence[Event], now: datetime) -> timedelta | None:
    """How long its latest attempt ran, or has run so far."""
    tries = attempts(history)
    if tries:
        end = tries[-1].ended_at or (now if job.state is State.RUNNING else None)
        return None if end is None else max(end - tries[-1].started_at, timedelta())
    if job.started_at is None:
        return None
    end = job.finished_at if job.state in FINAL else now if job.state is State.RUNNING else None
    return None if end is None else max(end - job.started_at, timedelta())

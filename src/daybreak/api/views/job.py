"""A job, its events, and the answer to a change of it, as JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from daybreak import values
from daybreak.api.job_history import ran_for, runner_of, waited_for
from daybreak.api.views.scalars import instant
from daybreak.client.finish import Finished
from daybreak.core.events import Event
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Job
from daybreak.sqs.deliveries import DeliveryRecord
from daybreak.store.protocol import Amendment


def job_view(
    job: Job, history: Sequence[Event], now: datetime, delivery: DeliveryRecord | None = None
) -> dict[str, Any]:
    """All fields of a job, in the order in which they are documented. `delivery` is what runs it on a remote worker."""
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
        "args": plain_value(spec.args),
        "result": None if job.result is None else plain_value(job.result),
        "error": _error(job),
        "progress": job.progress,
        "fence": job.fence,
        "run": spec.run,
        "owner": spec.owner,
        "key": spec.key,
        "tags": list(spec.tags),
        "meta": decode_meta(spec.meta),
        "resources": [{"resource": need.resource, "slots": need.slots} for need in spec.options.resources],
        "worker": runner_of(job, history, delivery),
        "detached_until": instant(job.leased_until) if job.detached else None,
        "cached_from": job.cached_from,
        "created_at": instant(job.created_at),
        "updated_at": instant(job.updated_at),
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


def event_view(event: Event) -> dict[str, Any]:
    """One event of a job's history, without the fields that are empty."""
    fields = {
        name: getattr(event, name) for name in ("n", "kind", "by", "state", "reason", "priority", "attempt", "fence")
    }
    fields |= {"at": instant(event.at), "run_at": instant(event.run_at), "deadline": instant(event.deadline)}
    fields |= {"note": event.note, "error": event.error}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def feed_event_view(event: Event) -> dict[str, Any]:
    """One event of the feed: as in a history, with the job's id, task, queue, run and owner."""
    names = {name: getattr(event, name) for name in ("job", "task", "queue", "run", "owner", "progress")}
    return {**event_view(event), **{name: value for name, value in names.items() if value not in (None, "")}}


def amendment_view(answer: Amendment) -> dict[str, Any]:
    """The result of one change: the job's id, the verdict, and the state that the job was in."""
    return {"id": answer.job, "verdict": answer.verdict, "state": answer.state.value if answer.state else None}


def finished_view(finished: Finished) -> dict[str, Any]:
    """What became of a finished job, as JSON data."""
    return {
        "id": finished.job,
        "state": finished.state.value,
        "attempt": finished.attempt,
        "fence": finished.fence,
        "repeated": finished.repeated,
    }


def plain_value(data: bytes) -> object:
    """Stored arguments, or a stored result, as plain values with secrets masked. Bytes that cannot be decoded become
    text."""
    try:
        return values.shown(data)
    except (ValueError, TypeError, KeyError, RecursionError):
        return data.decode("utf-8", "backslashreplace")

"""The items of a queue as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak import values
from daybreak.core.errors import BadInput
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Job, JobSpec, Reason, State
from daybreak.tasks.cache import Cache
from daybreak.tasks.cache_key import key_of_values

TASK: Final = "item"  # the task of items: workers never claim it, and take() claims nothing else
VERSION: Final = 1


class Item(Struct, frozen=True, kw_only=True):
    """An item of a queue at one instant. For a job of a task, `data` holds its arguments. `updated_at` is the time of
    its latest change: progress is none."""

    id: str
    data: Any
    state: State
    reason: Reason | None = None
    priority: int
    attempt: int = 0
    max_attempts: int
    metadata: dict[str, Any] = {}
    result: Any = None
    error: str = ""
    note: str = ""
    created_at: datetime
    updated_at: datetime
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class QueueCounts(Struct, frozen=True, kw_only=True):
    """The counts of a queue at one instant. States and priorities without items count 0.

    `by_priority` and `active` count unfinished items. `success_rate` is completed / (completed + failed), and None if
    there are neither. `oldest_wait` is how long the oldest queued item has waited."""

    by_state: dict[str, int]
    by_priority: dict[str, int]
    active: int
    total: int
    success_rate: float | None
    oldest_wait: timedelta | None


def attempts_of(max_attempts: object) -> object:
    """The attempts of an item. None takes the default; 0 means "do not retry", so the item gets one attempt."""
    is_zero = isinstance(max_attempts, int) and not isinstance(max_attempts, bool) and max_attempts == 0
    return 1 if is_zero else max_attempts


def encoded(data: object) -> bytes:
    """Encode an item's data as a job's arguments."""
    return values.encode({"data": data}, "item")


def data_of(task: str, args: bytes) -> Any:
    stored = values.decode(args)
    return stored["data"] if task == TASK else stored


def item_of_spec(spec: JobSpec, now: datetime) -> Item:
    """An item that was accepted now, and that the store does not have yet."""
    run_at = spec.run_at if spec.delay is None else now + spec.delay
    return Item(
        id=spec.id,
        data=data_of(spec.task, spec.args),
        state=State.QUEUED if run_at is None or run_at <= now else State.SCHEDULED,
        priority=spec.priority,
        max_attempts=spec.options.retry.attempts,
        metadata=decode_meta(spec.meta),
        created_at=now,
        updated_at=now,
        run_at=run_at,
    )


def item_of(job: Job) -> Item:
    spec = job.spec
    return Item(
        id=job.id,
        data=data_of(spec.task, spec.args),
        state=job.state,
        reason=job.reason,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=spec.options.retry.attempts,
        metadata=decode_meta(spec.meta),
        result=None if job.result is None else values.decode(job.result),
        error=str(job.failure) if job.failure else "",
        note=job.note,
        created_at=job.created_at,
        updated_at=job.updated_at,
        run_at=job.run_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


def with_flight(spec: JobSpec, flight: Mapping[str, Any], cache: Cache) -> JobSpec:
    """The item with the key of what decides its result."""
    if not isinstance(flight, Mapping) or not flight or not all(isinstance(name, str) for name in flight):
        raise BadInput(f"add(flight={flight!r:.60}): write a dict of the values that decide the result, by name")
    key = key_of_values(spec.task, flight, cache.version)
    return replace(spec, flight=key.flight, flight_parts=key.parts, options=replace(spec.options, cache=cache.caching))

"""Items of the original pyWATS queue: `{id}.{status}.wsjf` with `{id}.{status}.meta.json`, which knows nothing of
Daybreak. Missing or malformed metadata gets defaults."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.metadata import encode_meta
from daybreak.core.model import FINAL, Failure, JobSpec, Options, Reason, Retry, State
from daybreak.core.rank import Rank
from daybreak.core.units import Priority, clean, micros, moment
from daybreak.stores.directory.entry import Entry
from daybreak.stores.directory.layout import ITEM_TASK

DEFAULT_ATTEMPTS = 3  # of the original queue
BY = "pyWATS queue"


def entry_of(job: str, args: bytes, state: State, told: dict[str, Any], *, queue: str, changed: int) -> Entry:
    """The entry of a foreign item, still without a place in the order. `changed` is when its file was written. An item
    that was being processed is queued, and charged the attempt."""
    attempts = max(_integer(told.get("attempts"), 0), 0)
    created = min(_instant(told.get("created_at"), changed), changed)
    updated = max(_instant(told.get("updated_at"), changed), created)
    if state is State.RUNNING:
        state, attempts = State.QUEUED, attempts + 1
    priority = _integer(told.get("priority"), Priority.NORMAL.value)
    if not 0 <= priority <= 10:
        priority = Priority.NORMAL.value
    spec = JobSpec(
        id=job,
        task=ITEM_TASK,
        args=args,
        queue=queue,
        priority=priority,
        options=Options(retry=Retry(attempts=max(_integer(told.get("max_attempts"), DEFAULT_ATTEMPTS), 1))),
        by=BY,
        meta=_texts(told.get("custom")),
    )
    error = told.get("last_error")
    is_final = state in FINAL
    reason = Reason.ERROR if state is State.FAILED else None
    entry = Entry(
        spec=spec,
        lane=(queue, spec.task, spec.version),
        needs=(),
        seq=0,
        state=state,
        rank=Rank(priority, 0, 0),
        priority=priority,
        created=created,
        arrived=created,
        reason=reason,
        attempt=attempts,
        fence=attempts,
        n=1,
        finished=updated if is_final else None,
        failure=Failure(message=clean(error), attempt=attempts) if isinstance(error, str) and error else None,
    )
    entry.history = [
        Event(
            n=1, kind="moved", job=job, at=moment(updated), by=BY, state=state, reason=reason, task=spec.task,
            queue=queue, priority=priority, attempt=attempts, fence=attempts,
        )
    ]  # fmt: skip
    return entry


def _integer(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 30 else otherwise


def _instant(value: object, otherwise: int) -> int:
    """A time as text, in microseconds. A time without a zone is local time."""
    if not isinstance(value, str):
        return otherwise
    try:
        return micros(datetime.fromisoformat(value).astimezone())
    except (ValueError, OverflowError, OSError):
        return otherwise


def _texts(custom: object) -> dict[str, str]:
    """Metadata as texts. What JSON would not give back as it is becomes plain text."""
    if not isinstance(custom, dict):
        return {}
    texts: dict[str, str] = {}
    for key, value in custom.items():
        try:
            texts |= encode_meta({str(key): value})
        except BadInput:
            texts[str(key)] = str(value)
    return texts

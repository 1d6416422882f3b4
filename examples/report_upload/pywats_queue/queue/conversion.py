"""Jobs as items."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, NamedTuple

from daybreak.core.model import Job, State

from .item_store import NO_RETRIES, Held
from .items import Origin, QueueItem, QueueItemStatus

STATES: Final = {
    QueueItemStatus.PENDING: frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED}),
    QueueItemStatus.PROCESSING: frozenset({State.RUNNING}),
    QueueItemStatus.COMPLETED: frozenset({State.COMPLETED}),
    QueueItemStatus.FAILED: frozenset({State.FAILED}),
    QueueItemStatus.SUSPENDED: frozenset({State.SUSPENDED}),
}
STATUS: Final = {state: status for status, states in STATES.items() for state in states}


def status_of(job: Job, held: Held | None) -> QueueItemStatus:
    """An item that was taken but not marked is shown as pending."""
    if held is not None and not held.is_marked:
        return QueueItemStatus.PENDING
    return STATUS[job.state]


class Content(NamedTuple):
    """What an item holds beside its state."""

    id: str
    data: Any
    metadata: dict[str, Any]
    max_attempts: int


def content_of(item: QueueItem) -> Content:
    return Content(item.id, item.data, item.metadata, item.max_attempts)


def stored_attempts(job: Job) -> int:
    """The attempts that the item was added with."""
    return 0 if NO_RETRIES in job.spec.tags else job.spec.options.retry.attempts


def item_of(job: Job, held: Held | None, content: Content) -> QueueItem:
    is_reserved = held is not None and not held.is_marked
    item = QueueItem(
        id=content.id,
        data=content.data,
        priority=job.priority,
        status=status_of(job, held),
        created_at=job.created_at,
        updated_at=job.updated_at,
        attempts=job.attempt - 1 if is_reserved else job.attempt,
        max_attempts=content.max_attempts,
        last_error=_last_error(job),
        metadata=content.metadata,
    )
    item.origin = Origin(job.fence, job.revision)
    return item


def refresh(item: QueueItem, fresh: QueueItem) -> None:
    """Give an item the state of a fresh copy; its data and metadata stay the caller's own."""
    for field in fields(QueueItem):
        if field.name not in ("id", "data", "metadata"):
            setattr(item, field.name, getattr(fresh, field.name))
    item.origin = fresh.origin
    item.is_reset = False


def _last_error(job: Job) -> str | None:
    if job.state is State.SUSPENDED and job.note:
        return job.note
    return None if job.failure is None else job.failure.message

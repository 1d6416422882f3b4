"""The items of a queue: plain data and the marks that a program sets on it. `queue.update(item)` makes a mark true."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

HIGHEST, DEFAULT_PRIORITY, LOWEST = 1, 5, 10
DEFAULT_MAX_ATTEMPTS: Final = 3


class QueueItemStatus(StrEnum):
    """The state of an item."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    SUSPENDED = "suspended"


def utc_now() -> datetime:
    return datetime.now(UTC)


def checked_priority(priority: object) -> int:
    """The priority, if it is one: an integer from 1 (first) to 10."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not HIGHEST <= priority <= LOWEST:
        raise ValueError(f"priority {priority!r}: write an integer from {HIGHEST} (first) to {LOWEST} (last)")
    return priority


def checked_attempts(max_attempts: object) -> int:
    """The number of attempts, if it is one. With 0 the first failure is final, as with 1."""
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 0:
        raise ValueError(f"max_attempts {max_attempts!r}: write an integer from 0")
    return max_attempts


class Origin(NamedTuple):
    """The job that an item was read from: the fence of its latest lease, and how often it had changed."""

    fence: int
    revision: int


@dataclass
class QueueItem:
    """An item. The queue owns its state: a mark is a wish until `queue.update(item)` returns.

    `mark_failed` only says that this attempt failed. `update` then decides: an item that was PROCESSING and has
    attempts left is PENDING again, otherwise it is FAILED; the item shows which."""

    id: str
    data: Any
    priority: int = DEFAULT_PRIORITY
    status: QueueItemStatus = QueueItemStatus.PENDING
    created_at: datetime = field(default_factory=utc_now)
    updated_at: datetime = field(default_factory=utc_now)
    attempts: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    last_error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.origin: Origin | None = None
        self.is_reset = False

    @classmethod
    def create(
        cls,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """A new pending item; without an id it gets a UUID."""
        return cls(
            id=str(uuid.uuid4()) if item_id is None else item_id,
            data=data,
            priority=checked_priority(priority),
            max_attempts=checked_attempts(max_attempts),
            metadata=dict(metadata or {}),
        )

    # -- marks ---------------------------------------------------------------------------------------------------------

    def mark_processing(self) -> Self:
        """Say that work on the item begins. This is an attempt."""
        self.attempts += 1
        return self._mark(QueueItemStatus.PROCESSING)

    def mark_completed(self) -> Self:
        """Say that the item is done."""
        self.last_error = None
        return self._mark(QueueItemStatus.COMPLETED)

    def mark_failed(self, error: object = "") -> Self:
        """Say that this attempt failed."""
        self.last_error = str(error)
        return self._mark(QueueItemStatus.FAILED)

    def mark_suspended(self, reason: str | None = None) -> Self:
        """Say that the item is to be held until somebody resets it."""
        if reason:
            self.last_error = reason
        return self._mark(QueueItemStatus.SUSPENDED)

    def reset_to_pending(self) -> Self:
        """Say that the item is to be processed again, whoever works on it now."""
        self.is_reset = True
        return self._mark(QueueItemStatus.PENDING)

    def _mark(self, status: QueueItemStatus) -> Self:
        self.status = status
        self.updated_at = utc_now()
        return self

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def can_retry(self) -> bool:
        """Whether attempts are left."""
        return self.attempts < self.max_attempts

    @property
    def is_pending(self) -> bool:
        return self.status == QueueItemStatus.PENDING

    @property
    def is_processing(self) -> bool:
        return self.status == QueueItemStatus.PROCESSING

    @property
    def is_completed(self) -> bool:
        return self.status == QueueItemStatus.COMPLETED

    @property
    def is_failed(self) -> bool:
        return self.status == QueueItemStatus.FAILED

    @property
    def is_suspended(self) -> bool:
        return self.status == QueueItemStatus.SUSPENDED

    def __lt__(self, other: QueueItem) -> bool:
        return (self.priority, self.created_at) < (other.priority, other.created_at)

    # -- plain data ----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All fields; times as ISO 8601 text, the status by its value."""
        return {
            "id": self.id,
            "data": self.data,
            "priority": self.priority,
            "status": self.status.value,
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "last_error": self.last_error,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The item that `to_dict` told of. Items of before there were priorities have priority 5."""
        times = {name: _time(fields[name]) for name in ("created_at", "updated_at") if fields.get(name)}
        return cls(
            id=fields["id"],
            data=fields.get("data"),
            priority=fields.get("priority", DEFAULT_PRIORITY),
            status=QueueItemStatus(fields.get("status", QueueItemStatus.PENDING)),
            attempts=fields.get("attempts", 0),
            max_attempts=fields.get("max_attempts", DEFAULT_MAX_ATTEMPTS),
            last_error=fields.get("last_error"),
            metadata=dict(fields.get("metadata") or {}),
            **times,
        )


def _time(value: str | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)

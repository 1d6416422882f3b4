"""The names of the pyWATS queue document, on top of Daybreak.

| in pyWATS | here |
|---|---|
| `pywats.queue` | `pywats_queue.queue` (no file I/O) |"""

from __future__ import annotations

from .queue import (
    AsyncQueueAdapter,
    BaseQueue,
    DuplicateItemError,
    ItemNotFoundError,
    ItemTakenError,
    MemoryQueue,
    QueueCorruptedError,
    QueueCriticalError,
    QueueError,
    QueueFullError,
    QueueHooks,
    QueueItem,
    QueueItemStatus,
    QueueStats,
)

__all__ = [
    "AsyncQueueAdapter",
    "BaseQueue",
    "DuplicateItemError",
    "ItemNotFoundError",
    "ItemTakenError",
    "MemoryQueue",
    "QueueCorruptedError",
    "QueueCriticalError",
    "QueueError",
    "QueueFullError",
    "QueueHooks",
    "QueueItem",
    "QueueItemStatus",
    "QueueStats",
]

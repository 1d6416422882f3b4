"""The core: queues in memory. It does no file I/O. In pyWATS this is `pywats.queue`."""

from __future__ import annotations

from .adapter import AsyncQueueAdapter
from .errors import (
    DuplicateItemError,
    ItemNotFoundError,
    ItemTakenError,
    QueueCorruptedError,
    QueueCriticalError,
    QueueError,
    QueueFullError,
)
from .hooks import QueueHooks
from .interface import BaseQueue
from .items import QueueItem, QueueItemStatus
from .memory import MemoryQueue
from .stats import QueueStats

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

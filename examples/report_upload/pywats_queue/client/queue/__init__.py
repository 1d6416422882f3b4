"""Queues in files. In pyWATS this is `pywats_client.queue`."""

from __future__ import annotations

from pywats_queue.queue import (
    QueueCorruptedError,
    QueueCriticalError,
    QueueError,
    QueueFullError,
    QueueHooks,
    QueueItem,
    QueueItemStatus,
    QueueStats,
)

from .persistent import PersistentQueue

__all__ = [
    "PersistentQueue",
    "QueueCorruptedError",
    "QueueCriticalError",
    "QueueError",
    "QueueFullError",
    "QueueHooks",
    "QueueItem",
    "QueueItemStatus",
    "QueueStats",
]

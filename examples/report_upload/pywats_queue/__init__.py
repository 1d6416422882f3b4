"""The names of the pyWATS queue document, on top of Daybreak.

| in pyWATS | here |
|---|---|
| `pywats.queue` | `pywats_queue.queue` (no file I/O) |
| `pywats_client.queue` | `pywats_queue.client.queue` |
| `pywats_client.service` | `pywats_queue.client.service` |
| `pywats` | `pywats_queue` |

All names can also be imported from here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from .client.queue import PersistentQueue

# Imported when they are first used, so that the core can be used without code that does file I/O.
_LATER = {"PersistentQueue": ".client.queue"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)


__all__ = [
    "AsyncQueueAdapter",
    "BaseQueue",
    "DuplicateItemError",
    "ItemNotFoundError",
    "ItemTakenError",
    "MemoryQueue",
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

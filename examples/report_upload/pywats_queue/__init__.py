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

from .errors import AuthenticationError, NetworkError, ValidationError, WATSError
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
    from .client.service import AsyncPendingQueue, AsyncPendingQueueState
    from .reports import UUTReport
    from .wats import AsyncWATS, pyWATS

# Imported when they are first used, so that the core can be used without code that does file I/O.
_LATER = {
    "AsyncPendingQueue": ".client.service",
    "AsyncWATS": ".wats",
    "AsyncPendingQueueState": ".client.service",
    "PersistentQueue": ".client.queue",
    "UUTReport": ".reports",
    "pyWATS": ".wats",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)


__all__ = [
    "AsyncPendingQueue",
    "AsyncPendingQueueState",
    "AsyncQueueAdapter",
    "AsyncWATS",
    "AuthenticationError",
    "BaseQueue",
    "DuplicateItemError",
    "ItemNotFoundError",
    "ItemTakenError",
    "MemoryQueue",
    "NetworkError",
    "PersistentQueue",
    "QueueCorruptedError",
    "QueueCriticalError",
    "QueueError",
    "QueueFullError",
    "QueueHooks",
    "QueueItem",
    "QueueItemStatus",
    "QueueStats",
    "UUTReport",
    "ValidationError",
    "WATSError",
    "pyWATS",
]

"""AsyncQueueAdapter: a queue for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from .items import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, QueueItem
from .memory import MemoryQueue
from .stats import QueueStats


class AsyncQueueAdapter:
    """Awaits items of a queue; without one, of a MemoryQueue of its own."""

    def __init__(
        self,
        queue: MemoryQueue | None = None,
        max_size: int | None = None,
        default_max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> None:
        self._queue = MemoryQueue(max_size, default_max_attempts) if queue is None else queue

    @property
    def queue(self) -> MemoryQueue:
        return self._queue

    def put_nowait(
        self,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueueItem:
        """Add an item; QueueFullError if the queue is full. It may be called from any thread."""
        return self._queue.add(data, item_id, priority, max_attempts, metadata)

    async def put(
        self,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueueItem:
        """Add an item."""
        return self.put_nowait(data, item_id, priority, max_attempts, metadata)

    def get_nowait(self) -> QueueItem | None:
        return self._queue.get_next()

    async def get(self, timeout: float | None = None) -> QueueItem | None:  # noqa: ASYNC109
        """Take the next item, waiting for one; None after `timeout` seconds."""
        clock = asyncio.get_running_loop().time
        until = None if timeout is None else clock() + timeout
        while True:
            item = self._queue.get_next()
            if item is not None:
                return item
            left = None if until is None else max(until - clock(), 0.0)
            if not await self._queue.wait_for_item(left) and left == 0.0:
                return None

    async def get_batch(self, max_items: int = 10, timeout: float = 0.1) -> list[QueueItem]:  # noqa: ASYNC109
        """Take up to `max_items` items, waiting up to `timeout` seconds for the first one."""
        first = await self.get(timeout) if max_items > 0 else None
        batch = [] if first is None else [first]
        while batch and len(batch) < max_items:
            item = self._queue.get_next()
            if item is None:
                break
            batch.append(item)
        return batch

    def update(self, item: QueueItem) -> None:
        self._queue.update(item)

    def remove(self, item_id: str) -> bool:
        return self._queue.remove(item_id)

    @property
    def size(self) -> int:
        return self._queue.size

    @property
    def is_empty(self) -> bool:
        return self._queue.is_empty

    @property
    def stats(self) -> QueueStats:
        return self._queue.stats

    def qsize(self) -> int:
        """How many items wait."""
        return self._queue.stats.pending

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return self._queue.is_full

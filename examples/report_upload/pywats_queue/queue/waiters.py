"""Waiting for items on any event loop, woken from any thread. No wake-up is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

CHECK_EVERY: Final = 1.0  # seconds; another queue on the same folder may have added an item


class Waiters:
    """The tasks that wait for an item."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def wake(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, is_ready: Callable[[], bool], timeout: float | None) -> bool:  # noqa: ASYNC109
        """Wait until `is_ready`. False after `timeout` seconds. It registers before it looks, so that a change between
        the look and the wait wakes it."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        until = None if timeout is None else loop.time() + timeout
        with self._lock:
            self._waiting.add((loop, event))
        try:
            while True:
                event.clear()
                if is_ready():
                    return True
                left = CHECK_EVERY if until is None else min(until - loop.time(), CHECK_EVERY)
                if left <= 0:
                    return False
                try:
                    await asyncio.wait_for(event.wait(), left)
                except TimeoutError:
                    continue
        finally:
            with self._lock:
                self._waiting.discard((loop, event))

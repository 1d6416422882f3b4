"""Batches: requests of one process that are sent to the store together."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from daybreak import Priority


class Batches:
    """A single request is sent at once. Requests within `interval` after a batch are collected and sent when there are
    `size` of them, or when the interval is over. An emergency is sent at once, together with the collected requests."""

    def __init__(self, size: int, interval: timedelta) -> None:
        self._size = size
        self._interval = interval.total_seconds()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._open_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.sizes: list[int] = []

    async def turn(self, priority: int) -> None:
        """Return when the batch of this request is sent: the most urgent first, equal ones in the order of arrival."""
        loop = asyncio.get_running_loop()
        mine = (priority, loop.create_future())
        self._waiting.append(mine)
        if priority == Priority.EMERGENCY or len(self._waiting) >= self._size or loop.time() >= self._open_at:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_at(self._open_at, self._send)
        try:
            await mine[1]
        except asyncio.CancelledError:
            if mine in self._waiting:
                self._waiting.remove(mine)
            raise

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = sorted(self._waiting, key=lambda one: one[0]), []
        if not batch:
            return
        self._open_at = asyncio.get_running_loop().time() + self._interval
        self.sizes = [*self.sizes[-99:], len(batch)]
        for _, turn in batch:
            if not turn.done():
                turn.set_result(None)

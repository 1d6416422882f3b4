"""Moves jobs whose time has come: delayed jobs become queued, and jobs that waited too long expire."""

from __future__ import annotations

from datetime import timedelta

from daybreak.store.protocol import Store


class Scheduler:
    """Handles the jobs that no claim handles. A claim itself queues jobs that are due and skips those that have
    expired.

    It runs when the next job falls due, and at the latest after `every`, because jobs may be submitted meanwhile."""

    def __init__(self, store: Store, *, every: timedelta = timedelta(seconds=6)) -> None:
        self._store = store
        self._every = every

    async def tick(self) -> timedelta:
        advanced = await self._store.advance()
        if advanced.again:
            return timedelta()
        if advanced.next_in is None:
            return self._every
        return min(self._every, advanced.next_in)

"""Does what time alone decides: delayed jobs fall due, jobs that waited too long expire."""

from __future__ import annotations

from datetime import timedelta

from daybreak.store.protocol import Store


class Scheduler:
    """Not what makes jobs prompt: a claim queues what is due and passes over what has expired. It comes for what nobody
    claims, when the next job falls due, and every so often for what was submitted or has expired meanwhile."""

    def __init__(self, store: Store, *, every: timedelta = timedelta(seconds=6)) -> None:
        self._store = store
        self._every = every

    async def tick(self) -> timedelta:
        advanced = await self._store.advance()
        if advanced.again:
            return timedelta()
        return self._every if advanced.next_in is None else min(self._every, advanced.next_in)

"""Keeps the store small and finishes what was left half done."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from daybreak.client import Client
from daybreak.learning import forget_old
from daybreak.model import QueueSettings
from daybreak.store import Purge, Store
from daybreak.units import span
from daybreak.world import World

FORGET_EVERY: Final = timedelta(hours=1)


class Janitor:
    def __init__(
        self,
        store: Store,
        world: World,
        *,
        name: str,
        purge: Purge | None = None,
        every: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store = store
        self._client = Client(store, by=name, world=world)
        self._purge = purge or Purge()
        self._every = every
        self._world = world
        self._forget_at = world.steady() + span(FORGET_EVERY * world.chance.random())

    async def tick(self) -> timedelta:
        purged = await self._store.purge(self._purge)
        if self._world.steady() >= self._forget_at:
            self._forget_at = self._world.steady() + span(FORGET_EVERY)
            await forget_old(self._store, self._world)
        for record in await self._store.records("queue"):
            if not msgspec.json.decode(record.value, type=QueueSettings).ranked:
                await self._client.rerank_queue(record.name)
        return timedelta() if purged.again else self._every

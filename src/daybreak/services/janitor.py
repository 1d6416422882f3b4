"""Keeps the store small and finishes what was left half done."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from daybreak.client import Client
from daybreak.model import QueueSettings
from daybreak.store import Purge, Store
from daybreak.world import World


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

    async def tick(self) -> timedelta:
        purged = await self._store.purge(self._purge)
        for record in await self._store.records("queue"):
            if not msgspec.json.decode(record.value, type=QueueSettings).ranked:
                await self._client.rerank_queue(record.name)
        return timedelta() if purged.again else self._every

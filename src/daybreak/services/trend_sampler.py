"""Takes a snapshot of the totals shortly after the start of each minute. Every worker tries; the first one writes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.client.trend_counts import take_snapshot
from daybreak.core.units import moment, period
from daybreak.policy.trends import MINUTE
from daybreak.store.protocol import Store
from daybreak.system.ports import World

SPREAD: Final = timedelta(seconds=2)  # so that many workers do not ask the store in the same instant


class TrendSampler:
    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world

    async def tick(self) -> timedelta:
        await take_snapshot(self._store, moment(self._world.wall()))
        until_next = MINUTE - self._world.wall() % MINUTE
        return period(until_next) + SPREAD * self._world.chance.random()

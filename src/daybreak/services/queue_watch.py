"""Tells when a queue has become empty, and notices that a full queue has room again."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.client.queue_marks import Activity, forget_full_queues, read_activity, tell_empty_queues
from daybreak.store.protocol import Store
from daybreak.system.ports import World

BUSY_INTERVAL: Final = timedelta(seconds=10)
IDLE_INTERVAL: Final = timedelta(minutes=2)  # while nothing happens
SPREAD: Final = 0.2  # of the interval, so that many workers do not ask the store in the same instant


class QueueWatch:
    """Asks the store for its totals at every tick, and for more only if something has happened since the last one."""

    def __init__(self, store: Store, world: World, *, name: str) -> None:
        self._store = store
        self._world = world
        self._name = name
        self._activity: Activity | None = None

    async def tick(self) -> timedelta:
        activity = await read_activity(self._store)
        interval = IDLE_INTERVAL
        if activity != self._activity:
            interval = BUSY_INTERVAL
            await tell_empty_queues(self._store, activity, self._name)
            await forget_full_queues(self._store)
            self._activity = activity
        return interval * (1 + SPREAD * self._world.chance.random())

"""Takes over the jobs of the dead: an expired lease is just the outcome `Lost`."""

from __future__ import annotations

from datetime import timedelta

from daybreak.model import Lost
from daybreak.policy.settle import settle
from daybreak.store import Exchange, Reap, Store
from daybreak.units import span
from daybreak.world import World

CHUNK = 100


class Reaper:
    """Counts only time in which it could reach the store: after an outage, or its own stop, every holder gets one lease
    to report before it is given up."""

    def __init__(self, store: Store, world: World, *, name: str, every: timedelta = timedelta(seconds=1)) -> None:
        self._store = store
        self._world = world
        self._name = name
        self._every = every
        self._watching_since: int | None = None
        self._last_contact = 0
        self._pace = float(span(every))

    async def tick(self) -> timedelta:
        asked_at = self._world.steady()
        leases = await self._store.reap(
            Reap(
                worker=self._name,
                watched_for=self._watched_for(),
                limit=CHUNK,
                lease_for=max(self._every * 10, timedelta(seconds=1)),
            )
        )
        self._heard(asked_at)
        if leases:
            chance = self._world.chance
            await self._store.exchange(
                Exchange(settle=[settle(lease, Lost(), chance=chance.random(), by=self._name) for lease in leases])
            )
        return timedelta() if len(leases) == CHUNK else self._every

    def _watched_for(self) -> timedelta:
        now = self._world.steady()
        if self._watching_since is None or self._lost_sight(now):
            return timedelta()
        return timedelta(microseconds=now - self._watching_since)

    def _heard(self, asked_at: int) -> None:
        # The store was there at some time between question and answer, so the watch begins with the answer and contact
        # is as old as the question: a call that hung, or a stop in the midst of it, is time without contact as well.
        now = self._world.steady()
        if self._watching_since is None or self._lost_sight(now):
            self._watching_since = now
        if self._last_contact:
            gap = min(now - self._last_contact, 3 * self._pace)
            # Bounded, or silences that follow one another would come to count as the store's usual pace.
            pace = self._pace + (gap - self._pace) / 4
            self._pace = min(max(pace, span(self._every)), 2 * span(self._every))
        self._last_contact = asked_at

    def _lost_sight(self, now: int) -> bool:
        """The store was out of reach, or this process was: whoever held a lease may be back, too. A store that is
        merely slow is not out of reach, so the measure is how often answers have come of late."""
        return now - self._last_contact > 3 * self._pace

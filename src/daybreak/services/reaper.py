"""Takes over the jobs of the dead: an expired lease is just the outcome `Lost`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.core.model import Lease, Lost, Settlement
from daybreak.core.units import MAX_DURATION, span
from daybreak.policy.settle import settle
from daybreak.store.protocol import Exchange, Reap, Store
from daybreak.system import patience
from daybreak.system.ports import World

CHUNK: Final = 100
TICKS_PER_LEASE: Final = 3.0
LONG_ENOUGH: Final = timedelta(minutes=10)


def pace(lease_for: timedelta) -> timedelta:
    """How often to look for leases of this length. Often enough that a silence of half a lease shows, and seldom enough
    that an idle worker asks less than once a second."""
    return min(max(lease_for / TICKS_PER_LEASE, timedelta(seconds=0.1)), timedelta(seconds=2.4))


class Reaper:
    """Counts only time in which it could reach the store: after an outage, or its own stop, every holder gets one lease
    to report before it is given up.

    `lease_for` is how long the leases of this store's workers are, as a rule."""

    def __init__(
        self,
        store: Store,
        world: World,
        *,
        name: str,
        every: timedelta = timedelta(seconds=2),
        lease_for: timedelta | None = None,
    ) -> None:
        self._store = store
        self._world = world
        self._name = name
        self._every = every
        # Its own lease, on what it takes over: should it die before it settles, the next reaper waits that long again.
        self._term = min(max(lease_for or every * TICKS_PER_LEASE, timedelta(seconds=1)), timedelta(seconds=10))
        # Holders report every third of a lease: a silence of somewhat over half of one leaves each of them time before
        # it runs out. A pause of its own is no silence, however seldom it asks, nor is a slow answer after it.
        self._silence = span(max(self._term / 2, every * 1.75))
        self._watching_since: int | None = None
        self._last_contact = 0

    async def tick(self) -> timedelta:
        asked_at = self._world.steady()
        # After an outage it is back within half a lease: what the dead held is free within two.
        with patience.soon(self._term.total_seconds() / 2):
            leases = await self._store.reap(
                Reap(worker=self._name, watched_for=self._watched_for(), limit=CHUNK, lease_for=self._term)
            )
        self._heard(asked_at)
        if leases:
            await self._store.exchange(Exchange(settle=[self._fate_of(lease) for lease in leases]))
        return timedelta() if len(leases) == CHUNK else self._pause(asked_at)

    def _fate_of(self, lease: Lease) -> Settlement:
        return settle(lease, Lost(alone=lease.alone), chance=self._world.chance.random(), by=self._name)

    def _pause(self, asked_at: int) -> timedelta:
        """Questions come at an even pace: after a slow answer the next is asked sooner, or slowness and pause together
        would be taken for a silence."""
        took = timedelta(microseconds=self._world.steady() - asked_at)
        return max(self._every - took, self._every / 4)

    def _watched_for(self) -> timedelta:
        now = self._world.steady()
        if self._watching_since is None or self._lost_sight(now):
            return timedelta()
        watched = timedelta(microseconds=now - self._watching_since)
        # Who holds a lease of hours reports within minutes once it can, or was never going to.
        return watched if watched < LONG_ENOUGH else MAX_DURATION

    def _heard(self, asked_at: int) -> None:
        # The store was there at some time between question and answer, so the watch begins with the answer and contact
        # is as old as the question: a call that hung, or a stop in the midst of it, is time without contact as well.
        now = self._world.steady()
        if self._watching_since is None or self._lost_sight(now):
            self._watching_since = now
        self._last_contact = asked_at

    def _lost_sight(self, now: int) -> bool:
        """The store was out of reach, or this process was: whoever held a lease may be back, too."""
        return now - self._last_contact > self._silence

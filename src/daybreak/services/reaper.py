"""Takes over leases that have expired, because their worker is dead or cut off, and settles them as `Lost`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from daybreak.core.model import Lease, Lost, Settlement
from daybreak.core.units import MAX_DURATION, span
from daybreak.policy.settle import settle
from daybreak.store.protocol import Exchange, Reap, Store
from daybreak.system import patience
from daybreak.system.ports import World

OnSettled = Callable[[Lease, Settlement], None]

MAX_LEASES: Final = 100  # per tick
TICKS_PER_LEASE: Final = 3.0
# After watching for so long, count any lease that has expired as abandoned, however long it was.
LONG_ENOUGH: Final = timedelta(minutes=10)


def reap_interval(lease_for: timedelta) -> timedelta:
    """How often to look for expired leases of this length: often enough to notice an outage of half a lease, and seldom
    enough that an idle worker calls the store less than once a second."""
    return min(max(lease_for / TICKS_PER_LEASE, timedelta(seconds=0.1)), timedelta(seconds=2.4))


class Reaper:
    """Counts only time during which it could reach the store: after an outage, or after this process was suspended,
    every holder of a lease gets the length of one lease to report before the lease counts as expired.

    `lease_for` is the usual length of leases in this store. `on_settled` is called for each lease that it settled."""

    def __init__(
        self,
        store: Store,
        world: World,
        *,
        name: str,
        every: timedelta = timedelta(seconds=2),
        lease_for: timedelta | None = None,
        on_settled: OnSettled | None = None,
    ) -> None:
        self._on_settled = on_settled
        self._store = store
        self._world = world
        self._name = name
        self._every = every
        # The length of its own leases on jobs that it takes over: if it dies before it settles them, the next reaper
        # waits for that long again.
        self._lease_for = min(max(lease_for or every * TICKS_PER_LEASE, timedelta(seconds=1)), timedelta(seconds=10))
        # After so long without contact, start watching anew. Holders report every third of a lease, so a gap of a
        # little over half a lease leaves each of them time to report. The interval of this reaper, with a slow reply
        # after it, must not count as a gap.
        self._max_gap = span(max(self._lease_for / 2, every * 1.75))
        self._watching_since: int | None = None
        self._last_contact = 0

    async def tick(self) -> timedelta:
        asked_at = self._world.steady()
        # Do not wait longer than half a lease for the store: then, after an outage, the jobs of dead workers are free
        # within two leases.
        with patience.soon(self._lease_for.total_seconds() / 2):
            leases = await self._store.reap(
                Reap(
                    worker=self._name,
                    watched_for=self._watched_for(asked_at),
                    limit=MAX_LEASES,
                    lease_for=self._lease_for,
                    asked_at=asked_at,
                )
            )
        self._record_contact(asked_at)
        if leases:
            await self._settle(leases)
        return timedelta() if len(leases) == MAX_LEASES else self._pause(asked_at)

    async def _settle(self, leases: list[Lease]) -> None:
        settlements = [self._settlement_of(lease) for lease in leases]
        reply = await self._store.exchange(Exchange(settle=settlements))
        if self._on_settled is not None:
            for lease, settlement, accepted in zip(leases, settlements, reply.settled, strict=True):
                if accepted:
                    self._on_settled(lease, settlement)

    def _settlement_of(self, lease: Lease) -> Settlement:
        return settle(lease, Lost(alone=lease.alone), chance=self._world.chance.random(), by=self._name)

    def _pause(self, asked_at: int) -> timedelta:
        """The delay until the next tick. Ticks come at even intervals: after a slow reply the delay is shorter, because
        the reply and a full delay together would look like an outage."""
        took = timedelta(microseconds=self._world.steady() - asked_at)
        return max(self._every - took, self._every / 4)

    def _watched_for(self, now: int) -> timedelta:
        if self._watching_since is None or self._had_gap(now):
            return timedelta()
        watched = timedelta(microseconds=now - self._watching_since)
        # The holder of a lease of hours reports within minutes if it is alive.
        return watched if watched < LONG_ENOUGH else MAX_DURATION

    def _record_contact(self, asked_at: int) -> None:
        # The store was reachable at some time between the request and the reply. So watching starts with the reply, and
        # the last contact is as old as the request: a call that hung, or a suspension during it, is time without
        # contact.
        now = self._world.steady()
        if self._watching_since is None or self._had_gap(now):
            self._watching_since = now
        self._last_contact = asked_at

    def _had_gap(self, now: int) -> bool:
        """Whether the store was unreachable, or this process suspended, for so long that holders may not have been able
        to report either."""
        return now - self._last_contact > self._max_gap

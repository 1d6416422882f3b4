"""How many leases a pool can use now, and when it will need the next ones."""

from __future__ import annotations

from typing import Final

from daybreak.system.ports import Clock
from daybreak.worker.supervisor.batch_size import BatchSize
from daybreak.worker.supervisor.child import MIN_AHEAD, Child
from daybreak.worker.supervisor.children import Children
from daybreak.worker.supervisor.prefetch import DurationForecast, PrefetchedLeases
from daybreak.worker.supervisor.quarantine import Quarantine

MAX_AHEAD: Final = 0.05  # seconds of work that children may hold ahead while exchanges are slow
PREFETCH_MARGIN: Final = 0.005  # seconds added to the time that an exchange takes


class Capacity:
    """Measures how long exchanges and jobs take, and derives from that how much to claim.

    A pool with batch tasks claims nothing ahead: jobs that wait here for a slot would be missing in a fuller call."""

    def __init__(
        self,
        children: Children,
        quarantine: Quarantine,
        prefetched: PrefetchedLeases,
        clock: Clock,
        *,
        claims_ahead: bool = True,
    ) -> None:
        self.batch_size = BatchSize()
        self.forecast = DurationForecast()
        self._children = children
        self._quarantine = quarantine
        self._prefetched = prefetched
        self._clock = clock
        self._claims_ahead = claims_ahead

    def room(self, *, announced: bool) -> int:
        """How many leases can be used now, or in the time that an exchange takes. May be negative.

        Work that was just announced may be more urgent than the prefetched leases: it is claimed beside them, once, and
        starts first."""
        lead, soon = self._lead, 0
        for child in self._children.regular:
            soon += sum(left <= lead for left in self._ends_in(child))
        prefetched = len(self._prefetched)
        if announced:
            prefetched = max(0, prefetched - soon)
        return min(self.free + soon - prefetched, self.batch_size.limit)

    @property
    def free(self) -> int:
        """How many leases can be given to children now; whatever is claimed beyond that is claimed ahead of time."""
        return max(sum(max(child.room, 0) for child in self._children.regular) - self._quarantine.extra_slots, 0)

    @property
    def slots(self) -> int:
        return sum(child.slots for child in self._children.regular)

    @property
    def seconds_ahead(self) -> float:
        """Seconds until the first child has a free slot and no work for it."""
        return min((child.seconds_ahead for child in self._children.regular), default=0.0)

    def next_claim_in(self) -> float | None:
        """In how many seconds to claim the jobs for slots that are expected to become free; None if none are."""
        lead = self._lead
        ends = (left - lead for child in self._children.regular for left in self._ends_in(child))
        return min((left for left in ends if left > 0), default=None)

    def record_exchange(self, items: int, seconds: float) -> None:
        """Note how long an exchange took. The work that children hold ahead must last until the next one is back, also
        on a slow disk."""
        self.batch_size.record(items, seconds)
        ahead = min(max(MIN_AHEAD, 1.2 * self.batch_size.seconds), MAX_AHEAD)
        for child in self._children:
            child.ahead = ahead

    @property
    def _lead(self) -> float:
        """How many seconds before a slot becomes free its next job should be claimed."""
        return 1.5 * self.batch_size.seconds + PREFETCH_MARGIN

    def _ends_in(self, child: Child) -> list[float]:
        # Nothing is predictable, or the child has work ahead, or must get none.
        if not (self._claims_ahead and self.forecast and child.held) or child.load > child.slots or child.reserved:
            return []
        tasks = {seq: held.lease.spec.task for seq, held in child.held.items()}
        return self.forecast.ends_in(child.running(), tasks, self._clock.now())

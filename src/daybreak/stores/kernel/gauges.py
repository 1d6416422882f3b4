"""The gauges that a transaction has loaded: what is in use of each resource, and what it has freed.

core/resource_gauge.py has their arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from daybreak.core.model import Need
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, Gauge, Reservation, is_passed_over, spared_resource


class ResourceUser(Protocol):
    """What the resources need to know of a job: a row, or the head of a lane."""

    @property
    def seq(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def blocked_since(self) -> int | None: ...


class NeedyJob(Protocol):
    """A job that may have a reservation."""

    @property
    def seq(self) -> int: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...


class GaugeTable(Protocol):
    """The part of a transaction that keeps gauges."""

    steady: int
    wall: int

    def read_gauges(self, names: Sequence[str]) -> Mapping[str, Gauge]: ...
    def write_gauges(self, gauges: Mapping[str, Gauge]) -> None: ...
    def peek(self, seq: int) -> ResourceUser | None: ...


class Gauges:
    """Loads gauges on demand and writes the changed ones in `save`. `freed` are the resources, and the retry budgets,
    that must be offered to waiting jobs before the transaction ends."""

    def __init__(self, table: GaugeTable) -> None:
        self._table = table
        self._known: dict[str, Gauge] = {}
        self._stored: dict[str, Gauge] = {}
        self.freed: set[str] = set()

    # -- load and save -------------------------------------------------------------------------------------------------

    def __getitem__(self, resource: str) -> Gauge:
        if (known := self._known.get(resource)) is None:
            self.load((resource,))
            known = self._known[resource]
        return known

    def load(self, resources: Iterable[str]) -> None:
        """Read gauges together."""
        wanted = sorted({name for name in resources if name not in self._known})
        if wanted:
            for name, gauge in self._table.read_gauges(wanted).items():
                self._known[name], self._stored[name] = gauge.copy(), gauge

    def load_needs(self, jobs: Iterable[ResourceUser]) -> None:
        """Read the gauges that jobs need together."""
        self.load(need.resource for job in jobs for need in job.needs)

    def save(self) -> None:
        """Write what has changed."""
        changed = {name: gauge.copy() for name, gauge in self._known.items() if gauge != self._stored[name]}
        if changed:
            self._table.write_gauges(changed)
            self._stored |= changed

    def forget(self) -> None:
        """Forget all gauges, with what they were changed to and not saved."""
        self._known.clear()
        self._stored.clear()
        self.freed.clear()

    # -- slots ---------------------------------------------------------------------------------------------------------

    def lacking(self, job: ResourceUser) -> str | None:
        """The first resource, or retry budget, that a job must wait for; None if it can have all."""
        now = self._table.steady
        for need in job.needs:
            if self[need.resource].lacks(need.slots, now, seq=job.seq, priority=job.priority):
                return need.resource
        if job.attempt:
            for need in job.needs:
                if not self[need.resource].retries(now):
                    return RETRY_CAUSE_PREFIX + need.resource
        return None

    def shut(self, needs: Iterable[Need]) -> str | None:
        """The first of these resources whose breaker is open."""
        now = self._table.steady
        return next((need.resource for need in needs if self[need.resource].is_shut(now)), None)

    def take(self, job: ResourceUser) -> None:
        """Take what a job needs, for a lease that begins now."""
        self.release_reservation(job)
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.take(need.slots, self._table.steady, wall=self._table.wall, is_retry=job.attempt > 0):
                self.freed.add(RETRY_CAUSE_PREFIX + need.resource)

    def give(self, needs: Iterable[Need]) -> None:
        """Return the slots of a lease that ends."""
        for need in needs:
            self[need.resource].give(need.slots)
            self.freed.add(need.resource)

    def give_starts(self, needs: Iterable[Need], started: int | None) -> None:
        """Return the rate tokens of a lease that was never used. Its slots are returned separately."""
        for need in needs:
            self[need.resource].give_start(started)

    def next_fence(self, needs: Iterable[Need], fence: int) -> int:
        """A fence for the next holder of a lock: higher than that of every holder before, because the protected system
        compares fences."""
        gauges = [self[need.resource] for need in needs]
        fence = max(fence, *(gauge.fence + 1 for gauge in gauges))
        for gauge in gauges:
            gauge.fence = fence
        return fence

    # -- waiting -------------------------------------------------------------------------------------------------------

    def park(self, job: ResourceUser, resource: str, *, was_queued: bool) -> None:
        """Let a job wait for this resource; offer what else it was offered to other jobs."""
        now = self._table.steady
        self.release_reservation(job)
        if was_queued:
            self.offer_to_others(job)
        self.freed.discard(resource)
        if (spared := spared_resource(resource)) is not None:
            self[resource].look = self[spared].look_at_retries(now, offered=0, more=False)
            return
        self.reserve_for(job, since=now if job.blocked_since is None else job.blocked_since)
        self[resource].plan(now, offered=0, more=False)

    def offer_to_others(self, job: ResourceUser) -> None:
        """Offer to other jobs what was offered to this queued one."""
        self.freed.update(need.resource for need in job.needs)
        if job.attempt:
            self.freed.update(RETRY_CAUSE_PREFIX + need.resource for need in job.needs)

    def may_reserve_for(self, job: ResourceUser, *, since: int | None) -> bool:
        """Whether slots can be reserved for a job: it was passed over for too long, and no job goes before it."""
        now = self._table.steady
        return is_passed_over(job.needs, since, now) and all(
            self[need.resource].may_keep(need.slots, now, seq=job.seq, priority=job.priority) for need in job.needs
        )

    def reserve_for(self, job: ResourceUser, *, since: int | None) -> None:
        """Reserve slots for a job that was passed over for too long by jobs that need fewer. Slots of all its resources
        are reserved, or none, and only for the first such job in rank. So no job waits forever, and no two jobs wait
        for each other."""
        if not self.may_reserve_for(job, since=since):
            return
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.limit is not None:
                if gauge.kept is not None:
                    self.release_reservation_at(gauge)
                gauge.kept = Reservation(job.seq, job.priority, need.slots)

    def release_reservation_at(self, gauge: Gauge) -> None:
        """Release all reservations of the job for which slots of this resource are reserved."""
        assert gauge.kept is not None
        if (holder := self._table.peek(gauge.kept.seq)) is not None:
            self.release_reservation(holder)

    def release_reservation(self, job: NeedyJob) -> None:
        """Release the slots that are reserved for a job."""
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.kept is not None and gauge.kept.seq == job.seq:
                gauge.kept = None
                self.freed.add(need.resource)

"""The resources that a transaction has loaded: what is in use of them, and what it has freed.

core/resource_gauge.py has their arithmetic. The transaction holds the lock on all resources: see `lock_gauges`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol

from daybreak.core.model import Gate, Need, ResourceSettings
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, Gauge, Reservation, is_passed_over, spared_resource
from daybreak.core.units import span
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.statements import Statements

MAX_STORED: Final = 1 << 62  # fits a bigint, and is more than any number that a limit is compared with


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
    def since(self) -> int | None: ...


Values = tuple[int | None, ...]


class Gauges:
    """Loads gauges on demand and writes the changed ones in `save`."""

    def __init__(self, sql: Statements, rows: Callable[..., list[Any]], run: Callable[..., int]) -> None:
        self._sql = sql
        self._rows = rows
        self._run = run
        self._known: dict[str, Gauge] = {}
        self._stored: dict[str, Values] = {}
        self._waiting: Counter[str] = Counter()  # jobs blocked on each
        self.freed: set[str] = set()  # to be offered before this transaction ends

    def copy(self) -> Gauges:
        copied = Gauges(self._sql, self._rows, self._run)
        copied._known = {name: replace(gauge) for name, gauge in self._known.items()}
        copied._stored, copied._waiting, copied.freed = dict(self._stored), Counter(self._waiting), set(self.freed)
        return copied

    # -- load and save -------------------------------------------------------------------------------------------------

    def __getitem__(self, resource: str) -> Gauge:
        if resource not in self._known:
            self.load([resource])
        return self._known[resource]

    def load(self, resources: Iterable[str]) -> None:
        wanted = {name for name in resources if name not in self._known}
        if wanted:
            self._known.update((name, Gauge()) for name in wanted)
            for name, *values in self._rows(self._sql.load_gauges, (Texts(sorted(wanted)),)):
                self._known[name], self._waiting[name] = _read(*values)
                self._stored[name] = tuple(values)

    def load_needs(self, jobs: Iterable[ResourceUser]) -> None:
        self.load(need.resource for job in jobs for need in job.needs)

    def save(self) -> None:
        """Write what has changed."""
        changed = {
            name: values
            for name, gauge in self._known.items()
            if (values := _values(gauge, self._waiting[name])) != self._stored.get(name, UNTOUCHED)
        }
        if changed:
            columns = zip(*changed.values(), strict=True)
            self._run(self._sql.put_gauges, (Texts(list(changed)), *(Bigints(column) for column in columns)))
            self._stored.update(changed)

    # -- slots ---------------------------------------------------------------------------------------------------------

    def lacking(self, job: ResourceUser, now: int) -> str | None:
        """The first resource that a job needs and cannot have now; None if it can have all."""
        for need in job.needs:
            if self[need.resource].lacks(need.slots, now, seq=job.seq, priority=job.priority):
                return need.resource
        if job.attempt:
            for need in job.needs:
                if not self[need.resource].retries(now):
                    return RETRY_CAUSE_PREFIX + need.resource
        return None

    def shut(self, needs: Iterable[Need], now: int) -> str | None:
        """The first of these resources whose breaker is open."""
        return next((need.resource for need in needs if self[need.resource].is_shut(now)), None)

    def take(self, job: ResourceUser, now: int, wall: int) -> None:
        self.release_reservation(job)
        for need in job.needs:
            if self[need.resource].take(need.slots, now, wall=wall, is_retry=job.attempt > 0):
                self.freed.add(RETRY_CAUSE_PREFIX + need.resource)

    def give(self, needs: Iterable[Need]) -> None:
        for need in needs:
            self[need.resource].give(need.slots)
            self.freed.add(need.resource)

    def give_starts(self, needs: Iterable[Need], started: int | None) -> None:
        """Give back the rate-limit starts of a lease that was never used. Its slots are freed separately."""
        for need in needs:
            self[need.resource].give_start(started)

    def next_fence(self, needs: Iterable[Need], fence: int) -> int:
        """A fence that is higher than that of all earlier holders: what a lock protects is guarded by comparing
        fences."""
        gauges = [self[need.resource] for need in needs]
        fence = max(fence, *(gauge.fence + 1 for gauge in gauges))
        for gauge in gauges:
            gauge.fence = fence
        return fence

    # -- waiting -------------------------------------------------------------------------------------------------------

    def waiting(self, resource: str) -> int:
        """How many jobs are blocked on a resource."""
        self.load([resource])
        return self._waiting[resource]

    def count_waiting(self, resource: str, by: int = 1) -> None:
        """Count one more blocked job, or one less."""
        self.load([resource])
        self._waiting[resource] += by

    def park(self, job: ResourceUser, resource: str, now: int, *, was_queued: bool) -> None:
        """Let a job wait for this resource; offer its other resources to other jobs."""
        self.release_reservation(job)
        if was_queued:
            self.offer_to_others(job)
        self.freed.discard(resource)
        if (spared := spared_resource(resource)) is not None:
            self[resource].look = self[spared].look_at_retries(now, offered=0, more=False)
            return
        self.reserve_for(job, now, since=now if job.since is None else job.since)
        self[resource].plan(now, offered=0, more=False)

    def offer_to_others(self, job: ResourceUser) -> None:
        """Offer to other jobs what was offered to this queued one."""
        self.freed.update(need.resource for need in job.needs)
        if job.attempt:
            self.freed.update(RETRY_CAUSE_PREFIX + need.resource for need in job.needs)

    def may_reserve_for(self, job: ResourceUser, now: int, *, since: int | None) -> bool:
        return is_passed_over(job.needs, since, now) and all(
            self[need.resource].may_keep(need.slots, now, seq=job.seq, priority=job.priority) for need in job.needs
        )

    def reserve_for(self, job: ResourceUser, now: int, *, since: int | None) -> None:
        """Reserve resources for a job that has waited too long. Jobs that need few slots overtake jobs that need many,
        so after a while freed slots are reserved: for the first such job in rank, and for all of its resources or none.
        So no job waits forever, and no two jobs wait for each other."""
        if not self.may_reserve_for(job, now, since=since):
            return
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.limit is not None:
                if gauge.kept is not None:
                    self._release_reservations_of(gauge.kept.seq)
                gauge.kept = Reservation(job.seq, job.priority, need.slots)

    def _release_reservations_of(self, seq: int) -> None:
        """Release all reservations of a job, because another one takes precedence."""
        self.load(name for (name,) in self._rows(self._sql.kept_for, (seq,)))
        for name, gauge in self._known.items():
            if gauge.kept is not None and gauge.kept.seq == seq:
                gauge.kept = None
                self.freed.add(name)

    def release_reservation(self, job: ResourceUser) -> None:
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.kept is not None and gauge.kept.seq == job.seq:
                gauge.kept = None
                self.freed.add(need.resource)


def _read(
    slots: int | None, every: int | None, burst: int, max_waiting: int | None, probes: int | None, shut_until: int,
    used: int, waiting: int, tat: int, look: int | None, kept_seq: int | None, kept_priority: int, kept_slots: int,
    fence: int, sparing_until: int, credit: int, spare_at: int, taken_at: int,
) -> tuple[Gauge, int]:  # fmt: skip
    """A gauge and its number of waiting jobs, from a row of the statement `load_gauges`."""
    pace = None if every is None else timedelta(microseconds=every)
    kept = None if kept_seq is None else Reservation(kept_seq, kept_priority, kept_slots)
    return Gauge(
        settings=ResourceSettings(slots=slots, every=pace, burst=burst, max_waiting=max_waiting),
        gate=Gate(probes=probes), shut_until=shut_until, used=used, tat=tat, look=look, kept=kept, fence=fence,
        sparing_until=sparing_until, credit=credit, spare_at=spare_at, taken_at=taken_at,
    ), waiting  # fmt: skip


def _values(gauge: Gauge, waiting: int) -> Values:
    settings = gauge.settings
    return (
        _clamp(settings.slots), _clamp(None if settings.every is None else span(settings.every)),
        _clamp(settings.burst), _clamp(settings.max_waiting), _clamp(gauge.gate.probes),
        _clamp(gauge.shut_until), gauge.used, waiting, _clamp(gauge.tat), _clamp(gauge.look),
        *(gauge.kept or (None, None, None)), gauge.fence, _clamp(gauge.sparing_until), gauge.credit,
        _clamp(gauge.spare_at), gauge.taken_at,
    )  # fmt: skip


def _clamp(number: int | None) -> int | None:
    return None if number is None else max(-MAX_STORED, min(number, MAX_STORED))


UNTOUCHED: Final = _values(Gauge(), 0)

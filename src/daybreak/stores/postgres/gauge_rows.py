"""The resources that a transaction has looked at: what is in use of them, and what it has freed.

Their arithmetic is sharing.py's. Whoever has them is alone with all of them until the end: see lock_gauges.sql."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol

from daybreak.core.model import Gate, Need, ResourceSettings
from daybreak.core.resource_gauge import RETRIES_OF, Gauge, Kept, is_passed_over, spared_by
from daybreak.core.units import span
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.statements import Statements

UNLIMITED_SLOTS: Final = 1 << 62  # more than any number that a limit is compared with


class Wants(Protocol):
    """A job as far as it shares: wherever it stands, or as the head of its lane."""

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
    def __init__(self, sql: Statements, rows: Callable[..., list[Any]], run: Callable[..., int]) -> None:
        self._sql = sql
        self._rows = rows
        self._run = run
        self._known: dict[str, Gauge] = {}
        self._stored: dict[str, Values] = {}
        self._waiting: Counter[str] = Counter()  # how many are blocked on each
        self.freed: set[str] = set()  # to be offered before this transaction ends

    def copy(self) -> Gauges:
        copied = Gauges(self._sql, self._rows, self._run)
        copied._known = {name: replace(gauge) for name, gauge in self._known.items()}
        copied._stored, copied._waiting, copied.freed = dict(self._stored), Counter(self._waiting), set(self.freed)
        return copied

    # -- what is kept --------------------------------------------------------------------------------------------------

    def __getitem__(self, resource: str) -> Gauge:
        if resource not in self._known:
            self.know([resource])
        return self._known[resource]

    def know(self, resources: Iterable[str]) -> None:
        wanted = {name for name in resources if name not in self._known}
        if wanted:
            self._known.update((name, Gauge()) for name in wanted)
            for name, *values in self._rows(self._sql.load_gauges, (Texts(sorted(wanted)),)):
                self._known[name], self._waiting[name] = _read(*values)
                self._stored[name] = tuple(values)

    def know_needs(self, jobs: Iterable[Wants]) -> None:
        self.know(need.resource for job in jobs for need in job.needs)

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

    # -- having --------------------------------------------------------------------------------------------------------

    def lacking(self, job: Wants, now: int) -> str | None:
        """The first of what it needs that it cannot have now; None when it can have all of it."""
        for need in job.needs:
            if self[need.resource].lacks(need.slots, now, seq=job.seq, priority=job.priority):
                return need.resource
        if job.attempt:
            for need in job.needs:
                if not self[need.resource].retries(now):
                    return RETRIES_OF + need.resource
        return None

    def shut(self, needs: Iterable[Need], now: int) -> str | None:
        """The first of these whose breaker is open."""
        return next((need.resource for need in needs if self[need.resource].is_shut(now)), None)

    def take(self, job: Wants, now: int, wall: int) -> None:
        self.keep_no_more(job)
        for need in job.needs:
            if self[need.resource].take(need.slots, now, wall=wall, is_retry=job.attempt > 0):
                self.freed.add(RETRIES_OF + need.resource)

    def give(self, needs: Iterable[Need]) -> None:
        for need in needs:
            self[need.resource].give(need.slots)
            self.freed.add(need.resource)

    def give_starts(self, needs: Iterable[Need], started: int | None) -> None:
        """A lease that began then was never used; that its slots are free again follows."""
        for need in needs:
            self[need.resource].give_start(started)

    def next_fence(self, needs: Iterable[Need], fence: int) -> int:
        """Whoever guards what a lock protects compares fences: each holder of it has a higher one than all before."""
        gauges = [self[need.resource] for need in needs]
        fence = max(fence, *(gauge.fence + 1 for gauge in gauges))
        for gauge in gauges:
            gauge.fence = fence
        return fence

    # -- waiting -------------------------------------------------------------------------------------------------------

    def waiting(self, resource: str) -> int:
        """How many jobs are blocked on it."""
        self.know([resource])
        return self._waiting[resource]

    def wait(self, resource: str, by: int = 1) -> None:
        """One more is blocked on it, or one less."""
        self.know([resource])
        self._waiting[resource] += by

    def park(self, job: Wants, resource: str, now: int, *, was_queued: bool) -> None:
        """Let it wait for this resource; what else it was offered is for others."""
        self.keep_no_more(job)
        if was_queued:
            self.pass_on(job)
        self.freed.discard(resource)
        if (spared := spared_by(resource)) is not None:
            self[resource].look = self[spared].look_at_retries(now, offered=0, more=False)
            return
        self.keep_for(job, now, since=now if job.since is None else job.since)
        self[resource].plan(now, offered=0, more=False)

    def pass_on(self, job: Wants) -> None:
        """What a queued job was offered is for the next one."""
        self.freed.update(need.resource for need in job.needs)
        if job.attempt:
            self.freed.update(RETRIES_OF + need.resource for need in job.needs)

    def may_keep_for(self, job: Wants, now: int, *, since: int | None) -> bool:
        return is_passed_over(job.needs, since, now) and all(
            self[need.resource].may_keep(need.slots, now, seq=job.seq, priority=job.priority) for need in job.needs
        )

    def keep_for(self, job: Wants, now: int, *, since: int | None) -> None:
        """Those that need much are passed over by those that need little. After a while what they need is kept for
        them as it comes free: all of it or nothing, and for the first of them in rank. So nobody waits for ever, and no
        two wait for one another."""
        if not self.may_keep_for(job, now, since=since):
            return
        for need in job.needs:
            gauge = self[need.resource]
            if gauge.limit is not None:
                if gauge.kept is not None:
                    self._keep_nothing_for(gauge.kept.seq)
                gauge.kept = Kept(job.seq, job.priority, need.slots)

    def _keep_nothing_for(self, seq: int) -> None:
        """One that goes before it has come."""
        self.know(name for (name,) in self._rows(self._sql.kept_for, (seq,)))
        for name, gauge in self._known.items():
            if gauge.kept is not None and gauge.kept.seq == seq:
                gauge.kept = None
                self.freed.add(name)

    def keep_no_more(self, job: Wants) -> None:
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
    """A gauge and how many wait for it, as the statement `load_gauges` says."""
    pace = None if every is None else timedelta(microseconds=every)
    kept = None if kept_seq is None else Kept(kept_seq, kept_priority, kept_slots)
    return Gauge(
        settings=ResourceSettings(slots=slots, every=pace, burst=burst, max_waiting=max_waiting),
        gate=Gate(probes=probes), shut_until=shut_until, used=used, tat=tat, look=look, kept=kept, fence=fence,
        sparing_until=sparing_until, credit=credit, spare_at=spare_at, taken_at=taken_at,
    ), waiting  # fmt: skip


def _values(gauge: Gauge, waiting: int) -> Values:
    settings = gauge.settings
    return (
        _bounded(settings.slots), _bounded(None if settings.every is None else span(settings.every)),
        _bounded(settings.burst), _bounded(settings.max_waiting), _bounded(gauge.gate.probes),
        _bounded(gauge.shut_until), gauge.used, waiting, _bounded(gauge.tat), _bounded(gauge.look),
        *(gauge.kept or (None, None, None)), gauge.fence, _bounded(gauge.sparing_until), gauge.credit,
        _bounded(gauge.spare_at), gauge.taken_at,
    )  # fmt: skip


def _bounded(number: int | None) -> int | None:
    return None if number is None else max(-UNLIMITED_SLOTS, min(number, UNLIMITED_SLOTS))


UNTOUCHED: Final = _values(Gauge(), 0)

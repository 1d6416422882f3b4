"""Totals: what one transaction adds to the counters of what has happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from daybreak.core.model import Settlement
from daybreak.store.protocol import MAXIMA
from daybreak.stores.kernel.row import LaneName

Counter = tuple[int, int]  # how often, and the total time in microseconds


@dataclass(slots=True)
class Added:
    """What was added under one label; None adds nothing. `last` is the time of the latest settlement and how long that
    attempt ran."""

    n: int = 0
    took: int | None = None
    last: tuple[int, int] | None = None
    firsts: int | None = None
    waited: int | None = None
    attempts: int | None = None
    batches: int | None = None

    def settle(self, settlement: Settlement, now: int) -> None:
        self.n += 1
        self.took = (self.took or 0) + settlement.ran
        last = (now, settlement.ran)
        if self.last is None or last > self.last:
            self.last = last
        if settlement.waited is not None:
            self.firsts = (self.firsts or 0) + 1
            self.waited = (self.waited or 0) + settlement.waited
        if settlement.attempt > 1:
            self.attempts = max(self.attempts or 0, settlement.attempt)

    def counters(self, label: str) -> Iterator[tuple[str, Counter]]:
        """The single counters, each with its name."""
        yield label, (self.n, self.took or 0)
        if self.last is not None:
            yield "last", self.last
        if self.firsts is not None:
            yield "waited", (self.firsts, self.waited or 0)
        if self.attempts is not None:
            yield "attempts", (self.attempts, 0)
        if self.batches is not None:
            yield "batches", (self.batches, 0)


@dataclass(slots=True)
class Totals:
    """What one transaction adds, by lane, priority and label."""

    added: dict[tuple[LaneName, int, str], Added] = field(default_factory=dict)
    _settled: set[tuple[LaneName, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.added)

    def copy(self) -> Totals:
        return Totals({cell: replace(added) for cell, added in self.added.items()}, set(self._settled))

    def count(self, lane: LaneName, priority: int, what: str, n: int = 1, took: int | None = None) -> None:
        """Count one more, or n."""
        if (added := self.added.get((lane, priority, what))) is None:
            added = self.added[lane, priority, what] = Added()
        added.n += n
        if took is not None:
            added.took = (added.took or 0) + took

    def add(self, lane: LaneName, priority: int, what: str, n: int, took: int) -> None:
        """Count n more, which took so many microseconds."""
        self.count(lane, priority, what, n)
        added = self.added[lane, priority, what]
        added.took = (added.took or 0) + took

    def settle(self, lane: LaneName, priority: int, settlement: Settlement, now: int) -> None:
        """Count an accepted settlement. One exchange is one batch for each lane and priority that it settles."""
        if not settlement.counts_as:
            return
        label = settlement.counts_as
        if (added := self.added.get((lane, priority, label))) is None:
            added = self.added[lane, priority, label] = Added()
        added.settle(settlement, now)
        if (lane, priority) not in self._settled:
            self._settled.add((lane, priority))
            added.batches = 1

    def counters(self) -> Iterator[tuple[LaneName, int, str, Counter]]:
        """All single counters: lane, priority, name and what is added."""
        for (lane, priority, label), added in self.added.items():
            for name, counter in added.counters(label):
                yield lane, priority, name, counter


def add_counter(counters: dict[str, Counter], name: str, added: Counter) -> None:
    """Add to one counter; those that keep a maximum keep the greater."""
    before = counters.get(name)
    if before is None:
        counters[name] = added
    elif name in MAXIMA:
        counters[name] = max(before, added)
    else:
        counters[name] = (before[0] + added[0], before[1] + added[1])

"""Totals: what has happened, added up in the transaction that makes it so.

What is added is appended at the end, one row for each kind, and folded later (migrations/0001-fold_1.sql): a row that
all exchanges update would put them in one line. What settlements add stands in one row and not in five, since of all
that is counted they are the most frequent; the two calls of fast.py even add it to the rows of their tallies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from daybreak.core.model import Settlement
from daybreak.store.protocol import MAXIMA, Total
from daybreak.stores.postgres.arrays import Bigints, Ints, Smallints, Texts

Cell = tuple[int, int, str]  # lane, priority, what


@dataclass(slots=True)
class Added:
    """One row of the table `total`; None is nothing of it."""

    n: int = 0
    took: int | None = None
    last: tuple[int, int] | None = None  # when, and how long that attempt ran
    firsts: int | None = None
    waited: int | None = None
    attempts: int | None = None
    batches: int | None = None

    def settle(self, said: Settlement, now: int) -> None:
        self.n += 1
        self.took = (self.took or 0) + said.ran
        self.last = max(self.last or (0, 0), (now, said.ran))
        if said.waited is not None:
            self.firsts = (self.firsts or 0) + 1
            self.waited = (self.waited or 0) + said.waited
        if said.attempt > 1:
            self.attempts = max(self.attempts or 0, said.attempt)


@dataclass(slots=True)
class Totals:
    """What one transaction adds."""

    _added: dict[Cell, Added] = field(default_factory=dict)
    _settled: set[tuple[int, int]] = field(default_factory=set)  # lanes and priorities of which there was a settlement

    def __bool__(self) -> bool:
        return bool(self._added)

    def copy(self) -> Totals:
        return Totals({cell: replace(added) for cell, added in self._added.items()}, set(self._settled))

    def count(self, lane: int, priority: int, what: str) -> None:
        self._added.setdefault((lane, priority, what), Added()).n += 1

    def settle(self, lane: int, priority: int, said: Settlement, now: int) -> None:
        """Once it is accepted."""
        if not said.counts_as:
            return
        added = self._added.setdefault((lane, priority, said.counts_as), Added())
        added.settle(said, now)
        if (lane, priority) not in self._settled:  # one exchange is one batch of each
            self._settled.add((lane, priority))
            added.batches = 1

    def take_columns(self) -> tuple[Any, ...]:
        """All that was added, as the statement `add_total` wants it; from now on there is nothing."""
        cells, rows = self._added.keys(), self._added.values()
        columns = (
            Ints([lane for lane, _, _ in cells]), Smallints([priority for _, priority, _ in cells]),
            Texts([what for _, _, what in cells]), Bigints([a.n for a in rows]), Bigints([a.took for a in rows]),
            Bigints([a.last and a.last[0] for a in rows]), Bigints([a.last and a.last[1] for a in rows]),
            Bigints([a.firsts for a in rows]), Bigints([a.waited for a in rows]), Bigints([a.attempts for a in rows]),
            Bigints([a.batches for a in rows]),
        )  # fmt: skip
        self._added = {}
        return columns


def told(rows: Iterable[Any]) -> list[Total]:
    """Rows of the statement `all_totals` as they are asked for."""
    cells: dict[tuple[str, str, int, int, str], tuple[int, int]] = {}
    for queue, task, version, priority, what, n, took, last, firsts, waited, attempts, batches in rows:
        for called, of, long in (
            (what, n, took), ("last", *(last or (None, None))), ("waited", firsts, waited), ("attempts", attempts, 0),
            ("batches", batches, 0),
        ):  # fmt: skip
            if of is not None:
                cell, more = (queue, task, version, priority, called), (of, long or 0)
                there = cells.get(cell, (0, 0))
                is_most = called in MAXIMA
                cells[cell] = max(there, more) if is_most else (there[0] + more[0], there[1] + more[1])
    return sorted(Total(*cell, n, took) for cell, (n, took) in cells.items())

"""Totals: counters of what has happened, written in the transaction that makes it happen.

A transaction appends rows, which the SQL function `fold` adds up later: a row that every exchange updates would
serialize them all. A settlement, the most frequent event, adds one row instead of five; the functions of plain_path.py
even add it to the rows of their tallies."""

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
    """One row of the table `total`; None adds nothing."""

    n: int = 0
    took: int | None = None
    last: tuple[int, int] | None = None  # when, and how long that attempt ran
    firsts: int | None = None
    waited: int | None = None
    attempts: int | None = None
    batches: int | None = None

    def settle(self, settlement: Settlement, now: int) -> None:
        self.n += 1
        self.took = (self.took or 0) + settlement.ran
        self.last = max(self.last or (0, 0), (now, settlement.ran))
        if settlement.waited is not None:
            self.firsts = (self.firsts or 0) + 1
            self.waited = (self.waited or 0) + settlement.waited
        if settlement.attempt > 1:
            self.attempts = max(self.attempts or 0, settlement.attempt)


@dataclass(slots=True)
class Totals:
    """What one transaction adds."""

    _added: dict[Cell, Added] = field(default_factory=dict)
    _settled: set[tuple[int, int]] = field(
        default_factory=set
    )  # lanes and priorities that have a settlement in this transaction

    def __bool__(self) -> bool:
        return bool(self._added)

    def copy(self) -> Totals:
        return Totals({cell: replace(added) for cell, added in self._added.items()}, set(self._settled))

    def count(self, lane: int, priority: int, what: str) -> None:
        self._added.setdefault((lane, priority, what), Added()).n += 1

    def settle(self, lane: int, priority: int, settlement: Settlement, now: int) -> None:
        """Count an accepted settlement."""
        if not settlement.counts_as:
            return
        added = self._added.setdefault((lane, priority, settlement.counts_as), Added())
        added.settle(settlement, now)
        if (lane, priority) not in self._settled:  # one exchange counts as one batch for each
            self._settled.add((lane, priority))
            added.batches = 1

    def take_columns(self) -> tuple[Any, ...]:
        """The columns of the statement `add_total`; clears what was added."""
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


def to_totals(rows: Iterable[Any]) -> list[Total]:
    """Convert rows of the statement `all_totals`."""
    cells: dict[tuple[str, str, int, int, str], tuple[int, int]] = {}
    for queue, task, version, priority, what, n, took, last, firsts, waited, attempts, batches in rows:
        for name, amount, duration in (
            (what, n, took), ("last", *(last or (None, None))), ("waited", firsts, waited), ("attempts", attempts, 0),
            ("batches", batches, 0),
        ):  # fmt: skip
            if amount is not None:
                cell, addition = (queue, task, version, priority, name), (amount, duration or 0)
                sum_so_far = cells.get(cell, (0, 0))
                is_maximum = name in MAXIMA
                cells[cell] = (
                    max(sum_so_far, addition)
                    if is_maximum
                    else (sum_so_far[0] + addition[0], sum_so_far[1] + addition[1])
                )
    return sorted(Total(*cell, n, took) for cell, (n, took) in cells.items())

"""Rows of the tables `tally` and `total`, written in the transaction that they count.

A transaction appends rows, which the SQL function `fold` adds up later: a row that every exchange updates would
serialize them all. A settlement, the most frequent event, adds one row instead of five; the functions of plain_path.py
even add it to the rows of their tallies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from daybreak.store.protocol import Total
from daybreak.stores.kernel.row import LaneName
from daybreak.stores.kernel.totals import Counter, Totals, add_counter
from daybreak.stores.kernel.transaction import Cell
from daybreak.stores.postgres.arrays import Bigints, Ints, Smallints, Texts


def tally_columns(tallies: Mapping[Cell, int], lanes: Mapping[LaneName, int]) -> tuple[Any, ...] | None:
    """The columns of the statement `add_tally`; None if nothing has changed."""
    changed = [(lanes[name], priority, state.value, n) for (name, priority, state), n in tallies.items() if n]
    if not changed:
        return None
    lane, priority, state, n = zip(*changed, strict=True)
    return Ints(lane), Smallints(priority), Texts(state), Bigints(n)


def total_columns(totals: Totals, lanes: Mapping[LaneName, int]) -> tuple[Any, ...]:
    """The columns of the statement `add_total`."""
    cells, rows = totals.added.keys(), totals.added.values()
    return (
        Ints([lanes[name] for name, _, _ in cells]), Smallints([priority for _, priority, _ in cells]),
        Texts([what for _, _, what in cells]), Bigints([a.n for a in rows]), Bigints([a.took for a in rows]),
        Bigints([a.last and a.last[0] for a in rows]), Bigints([a.last and a.last[1] for a in rows]),
        Bigints([a.firsts for a in rows]), Bigints([a.waited for a in rows]), Bigints([a.attempts for a in rows]),
        Bigints([a.batches for a in rows]),
    )  # fmt: skip


def to_totals(rows: Iterable[Any]) -> list[Total]:
    """Convert rows of the statement `all_totals`."""
    cells: dict[tuple[str, str, int, int], dict[str, Counter]] = {}
    for queue, task, version, priority, what, n, took, last, firsts, waited, attempts, batches in rows:
        counters = cells.setdefault((queue, task, version, priority), {})
        for name, amount, duration in (
            (what, n, took), ("last", *(last or (None, None))), ("waited", firsts, waited), ("attempts", attempts, 0),
            ("batches", batches, 0),
        ):  # fmt: skip
            if amount is not None:
                add_counter(counters, name, (amount, duration or 0))
    return sorted(
        Total(*cell, name, *counter) for cell, counters in cells.items() for name, counter in counters.items()
    )

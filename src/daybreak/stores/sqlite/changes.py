"""What one request adds to the counts and to the event feed of its transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from daybreak.stores.kernel.totals import Totals
from daybreak.stores.kernel.transaction import Cell


@dataclass(slots=True)
class Changes:
    """Written at the end of the transaction; discarded if the request fails."""

    tallies: Counter[Cell]
    totals: list[Totals]
    lines: list[bytes]
    topics: set[str]

"""The totals of one lane and priority: what happened, how often, and the total time."""

from __future__ import annotations

from daybreak.store.protocol import MAXIMA


class Counts:
    """`of` maps what happened to its number and its total time in microseconds."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[str, tuple[int, int]] = {}

    def add(self, what: str, n: int = 1, took: int = 0) -> None:
        before = self.of.get(what)
        if before is None:
            self.of[what] = (n, took)
        elif what in MAXIMA:
            self.of[what] = max(before, (n, took))
        else:
            self.of[what] = (before[0] + n, before[1] + took)

"""What has happened to jobs of one lane and priority: how often, and how long it took together."""

from __future__ import annotations

from daybreak.store.protocol import MAXIMA


class Counts:
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

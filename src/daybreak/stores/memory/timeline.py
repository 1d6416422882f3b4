"""Jobs sorted by an instant: which are due, and when the next one is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class Timeline:
    """Pairs of instant and seq, sorted."""

    def __init__(self) -> None:
        self._at: list[tuple[int, int]] = []

    def add(self, at: int, seq: int) -> None:
        insort(self._at, (at, seq))

    def discard(self, at: int, seq: int) -> None:
        index = bisect_left(self._at, (at, seq))
        if index < len(self._at) and self._at[index] == (at, seq):
            del self._at[index]

    def until(self, now: int, limit: int) -> list[int]:
        """The jobs whose instant has come, earliest first."""
        return [seq for _, seq in self._at[: min(limit, bisect_right(self._at, now, key=lambda pair: pair[0]))]]

    def first(self) -> int | None:
        return self._at[0][0] if self._at else None

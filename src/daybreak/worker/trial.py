"""Jobs that were at a death before run alone, one at a time, until one is shown to be innocent or dies of itself."""

from __future__ import annotations

from collections import deque
from typing import Final

from daybreak.model import Lease

FIRST: Final = 60.0
LONGER: Final = 4


class Trial:
    """Who waits to be tried, and who is tried until when. One that has lived through its time lets the next begin;
    the time grows with each death, so that a killer is alone at last."""

    def __init__(self, on: dict[int, float]) -> None:
        self._waiting: deque[Lease] = deque()
        self._on = on  # shared by all pools of a worker: one at a time in all of them
        self._mine: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, lease: Lease) -> None:
        self._waiting.append(lease)

    @property
    def waiting(self) -> list[Lease]:
        return list(self._waiting)

    @property
    def may_begin(self) -> bool:
        return bool(self._waiting) and not self._on

    def next(self, now: float) -> Lease:
        """Who begins now; it is on trial from here."""
        lease = self._waiting.popleft()
        self._on[lease.seq] = now + FIRST * LONGER ** min(lease.lost - 1, 10)
        self._mine.add(lease.seq)
        return lease

    def end(self, seq: int) -> None:
        if seq in self._mine:
            self._mine.discard(seq)
            self._on.pop(seq, None)

    def survived(self, now: float) -> list[int]:
        """Those who have lived through their time: from now on they are not alone."""
        through = [seq for seq in self._mine if now >= self._on[seq]]
        for seq in through:
            self.end(seq)
        return through

    def drop(self, lost: Lease) -> bool:
        """Whether it waited."""
        before = len(self._waiting)
        self._waiting = deque(one for one in self._waiting if (one.seq, one.fence) != (lost.seq, lost.fence))
        return len(self._waiting) < before

    def clear(self) -> list[Lease]:
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

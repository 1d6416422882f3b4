"""Queued jobs in rank order: one sorted lane for each queue, task and version, so a claim reads only lanes it may
use."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from daybreak.core.rank import Rank

Lane = tuple[str, str, int]


class Ready:
    """The lanes of waiting jobs."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, Ranks] = {}

    def add(self, lane: Lane, rank: Rank) -> None:
        ranks = self._lanes.get(lane)
        if ranks is None:
            ranks = self._lanes[lane] = Ranks()
        ranks.add(rank)

    def discard(self, lane: Lane, rank: Rank) -> None:
        ranks = self._lanes.get(lane)
        if ranks is not None and ranks.discard(rank) and not len(ranks):
            del self._lanes[lane]

    def head(self, queue: str, tasks: frozenset[tuple[str, int]] | None) -> Rank | None:
        """The first job of a queue, of the tasks that the worker knows."""
        best: Rank | None = None
        for (name, task, version), ranks in self._lanes.items():
            if name == queue and (tasks is None or (task, version) in tasks):
                first = ranks.first
                if best is None or first < best:
                    best = first
        return best

    def tail(self, queue: str) -> Rank | None:
        """The last job of a queue."""
        return max((ranks.last for (name, _, _), ranks in self._lanes.items() if name == queue), default=None)

    def ahead_of(self, queue: str, rank: Rank) -> int:
        return sum(ranks.before(rank) for lane, ranks in self._lanes.items() if lane[0] == queue)

    def lanes(self) -> dict[Lane, list[Rank]]:
        return {lane: list(ranks) for lane, ranks in sorted(self._lanes.items())}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))


class Ranks:
    """A sorted list with a cheap removal of the first item: removed items stay in the list until they are half of
    it."""

    def __init__(self) -> None:
        self._all: list[Rank] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._all) - self._start

    def __iter__(self) -> Iterator[Rank]:
        return iter(self._all[self._start :])

    @property
    def first(self) -> Rank:
        return self._all[self._start]

    @property
    def last(self) -> Rank:
        return self._all[-1]

    def add(self, rank: Rank) -> None:
        ranks = self._all
        if len(ranks) == self._start or ranks[-1] < rank:
            ranks.append(rank)
        else:
            insort(ranks, rank, lo=self._start)

    def discard(self, rank: Rank) -> bool:
        ranks, start = self._all, self._start
        if start < len(ranks) and ranks[start] == rank:
            self._start += 1
            if self._start > len(ranks) // 2:
                del ranks[: self._start]
                self._start = 0
            return True
        at = bisect_left(ranks, rank, lo=start)
        if at == len(ranks) or ranks[at] != rank:
            return False
        del ranks[at]
        return True

    def before(self, rank: Rank) -> int:
        return bisect_left(self._all, rank, lo=self._start) - self._start

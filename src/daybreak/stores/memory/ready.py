"""Queued jobs in rank order: one sorted lane for each queue, task and version, so a claim reads only lanes it may
use."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from daybreak.core.rank import Rank
from daybreak.stores.kernel.row import LaneName


class Ready:
    """The lanes of waiting jobs."""

    def __init__(self) -> None:
        self._lanes: dict[LaneName, Ranks] = {}

    def add(self, lane: LaneName, rank: Rank) -> None:
        ranks = self._lanes.get(lane)
        if ranks is None:
            ranks = self._lanes[lane] = Ranks()
        ranks.add(rank)

    def discard(self, lane: LaneName, rank: Rank) -> None:
        ranks = self._lanes.get(lane)
        if ranks is not None and ranks.discard(rank) and not len(ranks):
            del self._lanes[lane]

    def walk(self, queue: str, tasks: frozenset[tuple[str, int]] | None) -> list[Iterator[Rank]]:
        """The lanes of a queue, of the tasks that the worker knows, each in rank order. Valid until the next change."""
        return [
            iter(ranks)
            for (name, task, version), ranks in self._lanes.items()
            if name == queue and (tasks is None or (task, version) in tasks)
        ]

    def tail(self, queue: str) -> Rank | None:
        """The last job of a queue."""
        return max((ranks.last for (name, _, _), ranks in self._lanes.items() if name == queue), default=None)

    def ahead_of(self, queue: str, rank: Rank) -> int:
        return sum(ranks.before(rank) for lane, ranks in self._lanes.items() if lane[0] == queue)

    def firsts(self, limit: int) -> list[list[Rank]]:
        """The first jobs of each lane, in the order of the lanes' names."""
        return [list(islice(ranks, limit)) for _, ranks in sorted(self._lanes.items())]

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
        return (self._all[at] for at in range(self._start, len(self._all)))

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

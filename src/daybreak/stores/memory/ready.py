"""Queued jobs in rank order: one sorted lane for each queue, task and version, so a claim never looks at other work."""

from __future__ import annotations

from bisect import bisect_left, insort

from daybreak.rank import Rank

Lane = tuple[str, str, int]


class Ready:
    def __init__(self) -> None:
        self._lanes: dict[Lane, list[Rank]] = {}

    def add(self, lane: Lane, rank: Rank) -> None:
        insort(self._lanes.setdefault(lane, []), rank)

    def discard(self, lane: Lane, rank: Rank) -> None:
        ranks = self._lanes.get(lane, [])
        at = bisect_left(ranks, rank)
        if at < len(ranks) and ranks[at] == rank:
            del ranks[at]
            if not ranks:
                del self._lanes[lane]

    def head(self, queue: str, tasks: frozenset[tuple[str, int]] | None) -> Rank | None:
        """The first job of a queue among the tasks that the claimant knows."""
        heads = (
            ranks[0]
            for (name, task, version), ranks in self._lanes.items()
            if name == queue and (tasks is None or (task, version) in tasks)
        )
        return min(heads, default=None)

    def ahead_of(self, queue: str, rank: Rank) -> int:
        return sum(bisect_left(ranks, rank) for lane, ranks in self._lanes.items() if lane[0] == queue)

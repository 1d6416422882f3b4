"""The leases that lie in task queues: how many, for how long, and how many more may be claimed.

Task queues stay shallow, so that priority and cancel stay with the ledger: at most `depth` messages for each bucket of
priorities wait for a worker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from daybreak.core.model import Lease
from daybreak.sqs import queue_names as names

DEPTH: Final = 10


class Waiting(Struct):
    """A lease whose message nobody has begun."""

    lease: Lease
    bucket: str
    sent_at: float


class Dispatched:
    """The leases of this dispatcher that nobody has begun."""

    def __init__(self, depth: int = DEPTH) -> None:
        self.depth = depth
        self._waiting: dict[tuple[str, int], Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            bucket = names.bucket_of(lease.priority)
            self._waiting[lease.job, lease.fence] = Waiting(lease, bucket, time.monotonic())

    def remove(self, keys: Iterable[tuple[str, int]]) -> bool:
        """Forget leases. True if there is more room now."""
        removed = [self._waiting.pop(key, None) for key in keys]
        return any(one is not None for one in removed)

    def leases(self) -> list[Lease]:
        return [one.lease for one in self._waiting.values()]

    def beyond_depth(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of these leases for which their task queue has no room: a claim passes over what is paused or blocked,
        and may return less urgent jobs than were counted on."""
        used = Counter(one.bucket for one in self._waiting.values())
        beyond = []
        for lease in leases:
            bucket = names.bucket_of(lease.priority)
            used[bucket] += 1
            if used[bucket] > self.depth:
                beyond.append(lease)
        return beyond

    def older_than(self, seconds: float) -> list[Lease]:
        """Leases whose message nobody took for so long."""
        before = time.monotonic() - seconds
        return [one.lease for one in self._waiting.values() if one.sent_at <= before]

    def room(self, queued: dict[int, int]) -> int:
        """How many jobs to claim, if so many are queued by priority. Claims come by rank, the most urgent first, so the
        first bucket that would overflow is where it ends."""
        used = Counter(one.bucket for one in self._waiting.values())
        total = 0
        for priority in sorted(queued):
            bucket = names.bucket_of(priority)
            taken = min(queued[priority], max(self.depth - used[bucket], 0))
            used[bucket] += taken
            total += taken
            if taken < queued[priority]:
                break
        return total

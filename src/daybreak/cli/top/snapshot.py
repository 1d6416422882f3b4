"""What `top` sees at one instant, and how fast things moved since it last looked."""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.worker_info import WorkerInfo, live_workers
from daybreak.client.client import Client
from daybreak.core.model import Job, State

RUNNING_SHOWN: Final = 20
FAILED_SHOWN: Final = 5
WINDOW: Final = timedelta(seconds=10)


class Look(Struct, frozen=True, kw_only=True):
    at: datetime
    queues: list[QueueInfo]
    running: list[Job]
    failed: list[Job]
    workers: list[WorkerInfo]

    @property
    def states(self) -> Counter[State]:
        found: Counter[State] = Counter()
        for queue in self.queues:
            found.update(queue.states)
        return found

    @property
    def priorities(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for queue in self.queues:
            found.update(queue.priorities)
        return found


async def look(client: Client) -> Look:
    now = datetime.now(UTC)
    return Look(
        at=now,
        queues=await read_queues(client),
        running=(await client.find(state=State.RUNNING, limit=RUNNING_SHOWN)).jobs,
        failed=(await client.find(state=State.FAILED, limit=FAILED_SHOWN)).jobs,
        workers=await live_workers(client, now),
    )


class Rates:
    """Jobs per second over the last looks. From counts, not from events: following every event of a busy store would
    cost more than the view is worth. Jobs that are removed meanwhile make a rate look lower, never negative."""

    def __init__(self) -> None:
        self._looks: deque[tuple[datetime, Counter[str]]] = deque()

    def add(self, seen: Look) -> None:
        states = seen.states
        totals = Counter({
            "submitted": states.total(),
            "completed": states[State.COMPLETED],
            "failed": states[State.FAILED],
        })  # fmt: skip
        self._looks.append((seen.at, totals))
        while seen.at - self._looks[0][0] > WINDOW:
            self._looks.popleft()

    def per_second(self) -> dict[str, float]:
        """Empty until there are two looks to compare."""
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        seconds = (last_at - first_at).total_seconds()
        if seconds <= 0:
            return {}
        return {name: max(last[name] - first[name], 0) / seconds for name in last}

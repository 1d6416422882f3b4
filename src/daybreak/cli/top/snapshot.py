"""What `top` reads from the store at one instant, and the rates over the last snapshots."""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.worker_info import WorkerInfo, live_workers
from daybreak.client.client import Client
from daybreak.core.model import Job, State

RUNNING_SHOWN: Final = 20
FAILED_SHOWN: Final = 5
WINDOW: Final = timedelta(seconds=10)


class Snapshot(Struct, frozen=True, kw_only=True):
    """The store at one instant."""

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


async def take_snapshot(client: Client) -> Snapshot:
    """Read everything that `top` shows."""
    now = datetime.now(UTC)
    return Snapshot(
        at=now,
        queues=await read_queues(client),
        running=(await client.find(state=State.RUNNING, limit=RUNNING_SHOWN)).jobs,
        failed=(await client.find(state=State.FAILED, limit=FAILED_SHOWN)).jobs,
        workers=await live_workers(client, now),
    )


class Counts(Protocol):
    """The jobs by state at one instant."""

    @property
    def at(self) -> datetime: ...

    @property
    def states(self) -> Counter[State]: ...


class Rates:
    """Jobs per second over the last ten seconds, from counts: reading every event of a busy store would cost too much.
    Jobs that are removed meanwhile make a rate lower, but never negative."""

    def __init__(self) -> None:
        self._totals: deque[tuple[datetime, Counter[str]]] = deque()

    def add(self, snapshot: Counts) -> None:
        states = snapshot.states
        totals = Counter({
            "submitted": states.total(),
            "completed": states[State.COMPLETED],
            "failed": states[State.FAILED],
        })  # fmt: skip
        self._totals.append((snapshot.at, totals))
        while snapshot.at - self._totals[0][0] > WINDOW:
            self._totals.popleft()

    def per_second(self) -> dict[str, float]:
        """The rates by name. Empty until there are two snapshots to compare."""
        (first_at, first), (last_at, last) = self._totals[0], self._totals[-1]
        seconds = (last_at - first_at).total_seconds()
        if seconds <= 0:
            return {}
        return {name: max(last[name] - first[name], 0) / seconds for name in last}

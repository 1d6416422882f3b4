"""The figures above the lists of `top`: depth, throughput, workers, the oldest job."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from daybreak.api.oldest import oldest_queued
from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.cli.queues.queue_text import by_bucket
from daybreak.cli.top.snapshot import Rates
from daybreak.client.client import Client
from daybreak.core.model import WAITING, State
from daybreak.core.text import counted, roughly

OLDEST_EVERY: Final = 5  # refreshes: the oldest job takes one read for each queue and priority

# The views of the list: its key, its name, and the states of its jobs.
VIEWS: Final[tuple[tuple[str, str, tuple[State, ...]], ...]] = (
    ("1", "all", ()),
    ("2", "waiting", tuple(state for state in State if state in WAITING)),
    ("3", "running", (State.RUNNING,)),
    ("4", "failed", (State.FAILED,)),
    ("5", "completed", (State.COMPLETED,)),
    ("6", "cancelled", (State.CANCELLED,)),
)


class Overview(Struct, frozen=True, kw_only=True):
    """The store at one instant."""

    at: datetime
    queues: list[QueueInfo] = []
    workers: list[WorkerInfo] = []
    oldest: datetime | None = None
    rates: dict[str, float] = {}

    @property
    def states(self) -> Counter[State]:
        found: Counter[State] = Counter()
        for queue in self.queues:
            found.update(queue.states)
        return found

    @property
    def live(self) -> list[WorkerInfo]:
        return [worker for worker in self.workers if worker.is_live(self.at)]

    def of_view(self, states: tuple[State, ...]) -> int:
        """How many jobs a view has."""
        return sum(self.states[state] for state in states or State)

    def depth(self) -> dict[str, int]:
        """The waiting jobs by named priority, the most urgent first."""
        levels: Counter[int] = Counter()
        for queue in self.queues:
            levels.update(queue.priorities)
        return {priority.name.lower(): n for priority, n in by_bucket(dict(levels)).items()}

    def oldest_text(self) -> str:
        return "" if self.oldest is None else f"oldest queued {roughly(self.at - self.oldest)}"

    def workers_text(self) -> str:
        if not self.live:
            return "no worker"
        return counted(len(self.live), "worker")


class OverviewReader:
    """Reads the overview. The rates come from the counts of earlier readings."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._readings = 0
        self._oldest: datetime | None = None

    async def read(self, client: Client) -> Overview:
        queues, workers = await read_queues(client), await read_workers(client)
        if self._readings % OLDEST_EVERY == 0:
            self._oldest = await oldest_queued(client)
        self._readings += 1
        read = Overview(at=datetime.now(UTC), queues=queues, workers=workers, oldest=self._oldest)
        self._rates.add(read)
        return Overview(at=read.at, queues=queues, workers=workers, oldest=self._oldest, rates=self._rates.per_second())


def short_number(n: int) -> str:
    """A number in at most five characters."""
    if n < 10_000:
        return f"{n:,}"
    if n < 1_000_000:
        return f"{n // 1000}k"
    return f"{n / 1_000_000:.1f}M" if n < 100_000_000 else f"{n // 1_000_000}M"

"""The measured values of the alerts. All are read from the store; rates are differences of its totals."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from daybreak.api.locks.lock_job import all_waiters
from daybreak.api.oldest import oldest_per_queue
from daybreak.api.worker_info import read_workers
from daybreak.client.client import Client
from daybreak.client.saga_record import read_unfinished
from daybreak.core.model import State
from daybreak.core.units import moment
from daybreak.policy.alerts import MIN_OPERATIONS, Figure
from daybreak.store.protocol import Tally, Total

WINDOW: Final = timedelta(minutes=5)
MAX_QUEUES: Final = 200  # only the queues with the most waiting jobs are watched

_NOT_OPERATIONS: Final = frozenset({
    "submitted", "shortened", "spared", "waited", "batches", "last", "attempts", "calls", "elements", "cached",
    "followed",
})  # fmt: skip


class FigureReader:
    """Reads the current figures. It keeps the totals of the last five minutes in memory."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._past: deque[tuple[datetime, dict[str, Counts]]] = deque()

    async def read(self) -> list[Figure]:
        client = self._client
        now = moment(client.wall())
        tallies = await client.tallies()
        waiting = waiting_by_queue(tallies)
        figures = [Figure("depth", queue, float(n)) for queue, n in waiting.items()]
        figures += self._rates(await client.store.totals(), now, set(waiting))
        oldest = {queue: (now - since).total_seconds() for queue, since in (await oldest_per_queue(client)).items()}
        served = {queue for worker in await read_workers(client) if worker.is_live(now) for queue in worker.queues}
        for queue, seconds in oldest.items():
            figures.append(Figure("oldest_wait", queue, seconds))
            figures.append(Figure("no_worker", queue, 0.0 if queue in served else seconds))
        return [*figures, *await self._locks(now), *await self._sagas()]

    async def _sagas(self) -> list[Figure]:
        unfinished = await read_unfinished(self._client.store)
        stuck = Counter(one.name for one in unfinished if one.progress.phase == "stuck")
        return [Figure("stuck_sagas", name, float(n)) for name, n in stuck.items()]

    async def _locks(self, now: datetime) -> list[Figure]:
        waiters = await all_waiters(self._client)
        wanted = {lock for waiter in waiters if waiter.state is not State.RUNNING for lock in waiter.locks}
        return [
            Figure("lock_held", lock, (now - waiter.since).total_seconds())
            for waiter in waiters
            if waiter.state is State.RUNNING
            for lock in waiter.locks
            if lock in wanted
        ]

    def _rates(self, totals: Iterable[Total], now: datetime, queues: set[str]) -> list[Figure]:
        """The rates since the oldest totals in memory, which are about five minutes old."""
        counts = counts_by_queue(totals)
        self._past.append((now, counts))
        while len(self._past) > 2 and now - self._past[1][0] >= WINDOW:
            self._past.popleft()
        if self._past and (self._past[0][0] > now or now - self._past[0][0] > 3 * WINDOW):
            # The clock was set or the process was suspended: start again with the current totals.
            self._past.clear()
            self._past.append((now, counts))
        before = self._past[0][1]
        busiest = sorted(counts, key=lambda queue: (queue not in queues, -counts[queue].operations))[:MAX_QUEUES]
        found: list[Figure] = []
        for queue in busiest:
            since = counts[queue].since(before.get(queue, Counts()))
            found.append(Figure("timeout_rate", queue, _share(since.timeouts, since.operations)))
            found.append(Figure("failure_rate", queue, _share(since.failures, since.operations)))
            found.append(Figure("retry_failures", queue, _share(since.failed_retries, since.retries)))
            found.append(Figure("average_wait", queue, since.waited_for / since.waited if since.waited else None))
        return found


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole >= MIN_OPERATIONS else None


class Counts:
    """The counted outcomes of the jobs of one queue. `waited_for` is in seconds."""

    def __init__(self, **counts: float) -> None:
        self.operations = int(counts.get("operations", 0))
        self.timeouts = int(counts.get("timeouts", 0))
        self.failures = int(counts.get("failures", 0))
        self.retries = int(counts.get("retries", 0))
        self.failed_retries = int(counts.get("failed_retries", 0))
        self.waited = int(counts.get("waited", 0))
        self.waited_for = counts.get("waited_for", 0.0)

    def since(self, before: Counts) -> Counts:
        return Counts(**{name: value - getattr(before, name) for name, value in vars(self).items()})

    def add(self, total: Total) -> None:
        if total.what == "waited":
            self.waited += total.n
            self.waited_for += total.took / 1e6
            return
        words = total.what.split()
        if total.what in _NOT_OPERATIONS or words[0] == "cancelled" or "shed" in words:
            return
        self.operations += total.n
        if {"late", "hung", "expired", "timeout"} & set(words):
            self.timeouts += total.n
        if words[0] == "failed":
            self.failures += total.n
        if "again" in words:
            self.retries += total.n
            if words[0] != "completed":
                self.failed_retries += total.n


def counts_by_queue(totals: Iterable[Total]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for total in totals:
        found.setdefault(total.queue, Counts()).add(total)
    return found


def waiting_by_queue(tallies: Iterable[Tally]) -> dict[str, int]:
    """The number of queued and blocked jobs by queue, for the longest queues only."""
    found: dict[str, int] = {}
    for tally in tallies:
        if tally.state in (State.QUEUED, State.BLOCKED):
            found[tally.queue] = found.get(tally.queue, 0) + tally.n
    longest = sorted(found, key=lambda queue: -found[queue])[:MAX_QUEUES]
    return {queue: found[queue] for queue in longest}

"""What a worker sees of the world: leases in, outcomes out. It never writes a settlement itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct

from daybreak.core.model import Lease, Outcome, Settlement
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Extended, Store, Watch, work_topic, worker_topic
from daybreak.system.ports import World
from daybreak.worker.supervisor.breaker_reports import BreakerReports
from daybreak.worker.supervisor.health_reports import HealthReports

Tasks = frozenset[tuple[str, int]]


class ClaimRequest(Struct, frozen=True):
    """Up to `limit` jobs of these tasks, of which the first `begins` start at once. `call` names the asking,
    `repeats` says that its answer was lost."""

    tasks: Tasks
    limit: int
    call: str | None = None
    repeats: bool = False
    begins: int | None = None


class Settled(Struct, frozen=True, gc=False):
    """`accepted` False: the lease was lost, and nothing was written."""

    lease: Lease
    settlement: Settlement
    accepted: bool


class ExchangeResult(Struct, frozen=True):
    settled: list[Settled]
    leases: list[Lease]
    next_in: timedelta | None = None
    again: bool = False


class Source(Protocol):
    worker: str

    async def exchange(self, ended: Sequence[tuple[Lease, Outcome]], want: ClaimRequest | None) -> ExchangeResult:
        """Report how leases ended and take new ones, in one step. Safe to repeat what was reported."""
        ...

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]: ...

    def watch_work(self) -> Watch: ...

    def watch_requests(self) -> Watch: ...


class LocalSource:
    """A store within reach, and the policy that decides fates."""

    def __init__(
        self, store: Store, world: World, *, worker: str, queues: tuple[str, ...], lease_for: timedelta
    ) -> None:
        self.worker = worker
        self._store = store
        self._world = world
        self._queues = queues
        self._lease_for = lease_for
        self._served = dict.fromkeys(queues, 0)
        self._gates = BreakerReports(store, world, worker)
        self._healths = HealthReports(store, world)

    async def exchange(self, ended: Sequence[tuple[Lease, Outcome]], want: ClaimRequest | None) -> ExchangeResult:
        if ended:
            await self._gates.hear(ended)
            await self._healths.hear(ended)
        chance, success = self._world.chance, self._healths.success
        settlements = [
            settle(lease, outcome, chance=chance.random(), by=self.worker, success=success(lease))
            for lease, outcome in ended
        ]
        answer = await self._store.exchange(
            Exchange(settle=settlements, claim=None if want is None else self._claim(want))
        )
        for lease in answer.leases:
            self._served[lease.spec.queue] += 1
        settled = [
            Settled(lease, settlement, accepted)
            for (lease, _), settlement, accepted in zip(ended, settlements, answer.settled, strict=True)
        ]
        return ExchangeResult(settled, answer.leases, answer.next_in, answer.again)

    async def run(self) -> None:
        """What is done beside exchanges, for ever."""
        await self._healths.run()

    def _claim(self, want: ClaimRequest) -> Claim:
        return Claim(
            worker=self.worker,
            queues=self._queues,
            served=tuple(self._served.values()),
            tasks=want.tasks,
            limit=want.limit,
            lease_for=self._lease_for,
            call=want.call,
            repeats=want.repeats,
            begins=want.begins,
        )

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]:
        return await self._store.extend(beats)

    def watch_work(self) -> Watch:
        return self._store.watch([work_topic(queue) for queue in self._queues])

    def watch_requests(self) -> Watch:
        return self._store.watch([worker_topic(self.worker)])

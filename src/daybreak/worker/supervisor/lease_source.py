"""What the worker uses of the store: claims leases, reports outcomes, sends heartbeats.

Outcomes become settlements here, by `policy/settle.py`; no other part of the worker writes a settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.model import Batching, Detached, Ending, Lease, Outcome, Settlement
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Extended, Store, Watch, work_topic, worker_topic
from daybreak.system.code_digest import code_changed
from daybreak.system.ports import World
from daybreak.tasks.cache_key import SOURCE
from daybreak.tasks.registry import Program
from daybreak.worker.supervisor.breaker_reports import BreakerReports
from daybreak.worker.supervisor.health_reports import HealthReports
from daybreak.worker.supervisor.job_logs import JobLogs
from daybreak.worker.supervisor.outcome_signals import OutcomeSignals

Tasks = frozenset[tuple[str, int]]
Batches = dict[tuple[str, int], Batching]


class ClaimRequest(Struct, frozen=True):
    """A claim of up to `limit` jobs of these tasks, of which the first `begins` start at once.

    `call` is a name for the request; `repeats` says that the reply to it was lost. With `job`, only the job with this
    id is claimed. `batches` are the batch tasks among them, whose jobs are claimed together."""

    tasks: Tasks
    limit: int
    call: str | None = None
    repeats: bool = False
    begins: int | None = None
    job: str | None = None
    batches: Batches = {}


class Settled(Struct, frozen=True, gc=False):
    """A settlement that was sent to the store. With `accepted` False the lease was lost, and nothing was written."""

    lease: Lease
    settlement: Settlement
    accepted: bool


class ExchangeResult(Struct, frozen=True):
    """The reply to an exchange. `next_in`: when the next job falls due; `again`: the store has more work right now.
    `detached` are the leases that were given up to go on elsewhere."""

    settled: list[Settled]
    leases: list[Lease]
    next_in: timedelta | None = None
    again: bool = False
    detached: tuple[tuple[Lease, Detached], ...] = ()

    @property
    def calls(self) -> int:
        """How many leases there are, where the leases of a call count as one."""
        return sum(lease.group is None or lease.group == lease.seq for lease in self.leases)


class Source(Protocol):
    """Where a worker gets its leases from."""

    worker: str

    async def exchange(self, ended: Sequence[tuple[Lease, Ending]], claim: ClaimRequest | None) -> ExchangeResult:
        """Report the outcomes of leases and claim new ones, in one step. Outcomes may be reported repeatedly."""
        ...

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]: ...

    def watch_work(self) -> Watch: ...

    def watch_requests(self) -> Watch: ...


class LocalSource:
    """A store that this process reaches directly, and the policy that decides what becomes of jobs."""

    def __init__(
        self, store: Store, world: World, *, worker: str, queues: tuple[str, ...], lease_for: timedelta
    ) -> None:
        self.worker = worker
        self._store = store
        self._world = world
        self.queues = queues
        self._lease_for = lease_for
        self._served = dict.fromkeys(queues, 0)
        self._signals = OutcomeSignals()
        self._breakers = BreakerReports(store, world, worker)
        self._health = HealthReports(store, world)
        self.logs: JobLogs | None = None
        self.program: Program | None = None  # what runs here: results of other code than was asked for are not kept

    async def exchange(
        self, ended: Sequence[tuple[Lease, Ending]], claim: ClaimRequest | None, *, by: str | None = None
    ) -> ExchangeResult:
        """`by` is who ended the leases, if it was not this worker."""
        if ended:
            signals = self._signals.collect(ended)
            if signals:
                await self._breakers.report(signals)
            await self._health.report(signals)
            if self.logs is not None:
                await self.logs.save_before_settling(lease for lease, _ in ended)
        detached, settling = await self._detach(ended)
        chance, success = self._world.chance, self._health.success
        settlements = [
            settle(lease, outcome, chance=chance.random(), by=by or self.worker, success=success(lease))
            for lease, outcome in settling
        ]
        if self.program is not None:
            settlements = [
                replace(one, unkept=True) if self._ran_other_code(lease) else one
                for (lease, _), one in zip(settling, settlements, strict=True)
            ]
        reply = await self._store.exchange(
            Exchange(settle=settlements, claim=None if claim is None else self._store_claim(claim))
        )
        for lease in reply.leases:
            self._served[lease.spec.queue] += 1
            if lease.spec.options.resources and lease.group in (None, lease.seq):  # the first of a call holds its slots
                self._breakers.started((lease,))
        settled = [
            Settled(lease, settlement, accepted)
            for (lease, _), settlement, accepted in zip(settling, settlements, reply.settled, strict=True)
        ]
        return ExchangeResult(settled, reply.leases, reply.next_in, reply.again, detached)

    def _ran_other_code(self, lease: Lease) -> bool:
        """Whether the job was submitted by a program with other code of its task."""
        asked = lease.spec.flight_parts.get(SOURCE, "") if lease.spec.flight is not None else ""
        if not asked or self.program is None or lease.spec.task not in self.program:
            return False
        return code_changed(asked, self.program[lease.spec.task].whole_code)

    async def _detach(
        self, ended: Sequence[tuple[Lease, Ending]]
    ) -> tuple[tuple[tuple[Lease, Detached], ...], list[tuple[Lease, Outcome]]]:
        """Detach those of these leases that go on elsewhere. Returns them, and all others.

        A lease that is not held any more was finished by somebody who was faster, or was lost: both is in order."""
        rest: list[tuple[Lease, Outcome]] = []
        detached: list[tuple[Lease, Detached]] = []
        for lease, ending in ended:
            if isinstance(ending, Detached):
                detached.append((lease, ending))
            else:
                rest.append((lease, ending))
        if not detached:
            return (), rest
        replies = await self._store.extend(
            [
                Beat(seq=lease.seq, fence=lease.fence, lease_for=ending.deadline, detach=True, job=lease.job)
                for lease, ending in detached
            ]
        )
        held = [pair for pair, reply in zip(detached, replies, strict=True) if reply.held and not reply.cancel]
        return tuple(held), rest

    async def run(self) -> None:
        """Publish resource health, and tell of probes, forever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._health.run())
            group.create_task(self._breakers.run())

    def _store_claim(self, request: ClaimRequest) -> Claim:
        return Claim(
            worker=self.worker,
            queues=self.queues,
            served=tuple(self._served.values()),
            tasks=request.tasks,
            limit=request.limit,
            lease_for=self._lease_for,
            call=request.call,
            repeats=request.repeats,
            begins=request.begins,
            job=request.job,
            batches=request.batches,
        )

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]:
        return await self._store.extend(beats)

    def watch_work(self) -> Watch:
        return self._store.watch([work_topic(queue) for queue in self.queues])

    def watch_requests(self) -> Watch:
        return self._store.watch([worker_topic(self.worker)])

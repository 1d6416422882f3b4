"""The real worker in a simulated process: its own supervisor, source and services, over fake children."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from daybreak.core.model import Lease, Outcome
from daybreak.services import runner
from daybreak.services.janitor import Janitor
from daybreak.services.reaper import OnSettled
from daybreak.services.scheduler import Scheduler
from daybreak.services.trend_sampler import TrendSampler
from daybreak.store.protocol import Beat, Extended, Purge
from daybreak.tasks.registry import Definition, Program
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult
from daybreak.worker.supervisor.store_source import StoreSource
from daybreak.worker.supervisor.worker import Worker
from daybreak.worker.wire import Hello
from harness.child import SimChild
from harness.plan import LEASE, LEASE_SECONDS, QUEUES, REAP_EVERY
from harness.process import Process

if TYPE_CHECKING:
    from harness.site import Site

# The whole feed is kept: the reader may be cut off for long, and the checker compares all of it.
PURGE: Final = Purge(events_for=timedelta(days=30))


def work(n: int) -> None:
    """A sync task; `late` is known only to workers that come later."""


async def wait(n: int) -> None:
    """An async task."""


def _program(*definitions: Definition) -> Program:
    program = Program()
    for definition in definitions:
        program.add(definition)
    return program


_USUAL: Final = (Definition(work), Definition(work, name="quick"), Definition(wait))
KNOWN: Final = _program(*_USUAL)
KNOWN_LATER: Final = _program(*_USUAL, Definition(work, name="late"))


class SimSource(StoreSource):
    """Notes what the supervisor tells of its leases, and may be stopped at the worst moment."""

    def __init__(self, site: Site, process: Process, plan: ChildPlan) -> None:
        self._site = site
        self._process = process
        super().__init__(site.wire(process), plan, site.world_of(process))

    def _new_identity(self, name: str | None) -> str:
        return self._process.name

    def _services(self, on_reaped: OnSettled | None) -> Sequence[runner.Service]:
        store, world, name = self._store, self._world, self._process.name
        return [
            self._site.parts.reaper(store, world, name=name, every=REAP_EVERY, lease_for=LEASE, on_settled=on_reaped),
            Scheduler(store),
            Janitor(store, world, name=name, purge=PURGE, every=timedelta(seconds=20)),
            TrendSampler(store, world),
        ]

    async def exchange(
        self, ended: Sequence[tuple[Lease, Outcome]], claim: ClaimRequest | None, *, by: str | None = None
    ) -> ExchangeResult:
        for lease, outcome in ended:
            self._site.history.outcome(self._process.name, lease, type(outcome).__name__)
        if ended:
            await self._maybe_stop()
        result = await super().exchange(ended, claim, by=by)
        self._site.saw("claimed ahead", sum(not lease.begun for lease in result.leases))
        for settled in result.settled:
            if not settled.accepted:
                self._site.saw("fenced settlement")
        return result

    async def _maybe_stop(self) -> None:
        """The worst moment to be stopped: the work is done and nobody knows."""
        site = self._site
        if site.plan.has("freeze_before_settle") and not site.calm and site.fate.random() < 0.03:
            site.saw("stopped between finishing and settling")
            site.freeze(self._process, LEASE_SECONDS * 10 ** site.fate.uniform(-1, 1))
            await asyncio.sleep(0)

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]:
        replies = await super().extend(beats)
        self._site.saw("lease lost", sum(not reply.held for reply in replies))
        self._site.saw("said to run alone", sum(beat.alone is True for beat in beats))
        self._site.saw("began later", sum(beat.begun is True for beat in beats))
        return replies


def start_worker(site: Site, program: Program, *, name: str | None = None) -> Process:
    process = site.process("worker", name=name)
    settings = WorkerSettings(
        queues=QUEUES,
        processes=site.plan.slots,
        async_jobs=site.plan.slots,
        lease_for=LEASE,
        grace=timedelta(seconds=site.fate.choice((0, 2, 10))),
        cancel_grace=timedelta(seconds=2),
    )

    def launch(hello: Hello, _: Program, __: str | None) -> ChildHandle:
        if site.plan.has("no_start") and not site.calm and site.fate.random() < 0.1:
            site.saw("child not started")
            raise OSError("simulated: too many processes")
        return SimChild(site, process, hello, program.known(is_async=hello.is_async))

    async def run() -> None:
        plan = ChildPlan(program=program, settings=settings, launch=launch)
        world = site.world_of(process)
        worker = site.running[process.name] = Worker(SimSource(site, process, plan), plan, world)
        await worker.run()
        site.saw("worker stopped")
        site.history.stop(process.name)
        process.kill()

    site.history.note(process.name, "starts")
    process.spawn(run())
    return process


async def keep_manned(site: Site, program: Program) -> None:
    """One place at which a worker stands: when it dies another comes, under a new identity."""
    process = start_worker(site, program)
    site.workers.append(process)
    while True:
        await asyncio.sleep(0.5)
        if not process.alive:
            await asyncio.sleep(0.1 if site.calm else site.fate.uniform(0.1, 5.0))
            at = site.workers.index(process)
            process = start_worker(site, program, name=process.name if site.parts.reuse_names else None)
            site.workers[at] = process

"""A worker: starts and stops its pools, and keeps everything around them alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from daybreak import telemetry
from daybreak.client.duration_stats import DurationStats
from daybreak.core.errors import BadInput, StoreError
from daybreak.core.model import FINAL, Lease, Put, State
from daybreak.core.units import counted, moment
from daybreak.services.runner import default_services, run
from daybreak.store.protocol import Extended, OwnLoop, Store
from daybreak.system import patience
from daybreak.system.ports import Ids, World
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.children import ChildImportFailed
from daybreak.worker.supervisor.claim_loop import POLL, ClaimLoop
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.idle_check import is_idle
from daybreak.worker.supervisor.lease_source import ExchangeResult, LocalSource, Settled
from daybreak.worker.supervisor.pool import Pool

_log = logging.getLogger("daybreak.worker")

LOOK_BUSY: Final = 0.1
LOOK_IDLE: Final = 1.0


class WorkerListener(Protocol):
    """Who wants to hear what this worker does, in this process (hooks)."""

    def started(self, lease: Lease) -> None: ...

    def settled(self, settled: Settled) -> None: ...


class Worker:
    """A supervisor."""

    def __init__(
        self,
        store: Store,
        launch: ChildPlan,
        world: World,
        *,
        app: str = "",
        ears: WorkerListener | None = None,
        beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        program, settings = launch.program, launch.settings
        settings.check()
        if not len(program):
            raise BadInput(
                "this app has no tasks to work on: define one with @app.task, or name its module in imports="
            )
        self.id = f"{settings.name or 'worker'}-{Ids(world)()}"
        self.settings = settings
        self._store = store
        self._program = program
        self._launch = launch
        self._world = world
        self._ears = ears
        self._beside = beside
        self._queues = tuple(dict.fromkeys(settings.queues)) or program.queues()
        self._source = LocalSource(store, world, worker=self.id, queues=self._queues, lease_for=settings.lease_for)
        self._learning = DurationStats(store, world)
        self._shared: dict[str, Any] = {}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._fatal: BaseException | None = None
        self._pools: list[Pool] = []
        self._tending: list[ClaimLoop] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._about = worker_record.WorkerRecord(
            id=self.id,
            name=settings.name or "worker",
            app=app,
            started_at=self._now(),
            seen_at=self._now(),
            queues=self._queues,
            tasks=tuple(sorted(program.known())),
            code=worker_record.code_of(program),
            on_loop=tuple(sorted({name for name, _ in program.known(is_async=True)})),
            processes=settings.slots if program.known(is_async=False) else 0,
            async_jobs=settings.async_jobs if program.known(is_async=True) else 0,
            lease_for=settings.lease_for,
        )
        self.done = 0
        self.failed = 0
        self.is_ready = asyncio.Event()

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- life ----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The first time: finish what runs, within the grace time. The second time: stop now."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        for pool in self._pools:
            pool.changed.set()

    def stop_from_outside(self) -> None:
        """`stop` from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has closed: it has stopped
                self._loop.call_soon_threadsafe(self.stop)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Until it was told to stop, or stopped by itself."""
        await self._stopping.wait()

    async def run(self) -> None:
        """Until stopped. Raises what makes going on pointless: user code that cannot be imported, a store too new."""
        self._loop = asyncio.get_running_loop()
        patience.unbound()
        if isinstance(self._store, OwnLoop):
            self._store.own_loop()
        async with contextlib.AsyncExitStack() as around:
            await self._enter_lifespans(around)
            self._pools = self._launch.pools(self._shared)
            keeper = Heartbeats(
                self._source, self._world, lease_for=self.settings.lease_for, held=self._held, heard=self._heard
            )
            for pool in self._pools:
                pool.keep_by(keeper)
                pool.limit_by(self._learning.limit_of)
            around.push_async_callback(self._close_pools)
            for pool in self._pools:
                await pool.children.open(pool)
            for pool in self._pools:
                await self._until_stopped(pool.children.ready())
            await self._work(keeper)
        if self._fatal is not None:
            raise self._fatal

    async def _work(self, keeper: Heartbeats) -> None:
        background = [
            keeper.run(),
            self._listen(keeper),
            self._look_after(),
            self._tell_of_myself(),
            self._learning.run(),
            self._source.run(),
            self._forget_the_dead(),
            run(
                default_services(self._store, self._world, name=self.id, lease_for=self.settings.lease_for), self._world
            ),
            self._stop_when_idle(),
            *(work() for work in self._beside),
        ]
        async with _together(background, self._on_trouble):
            self.is_ready.set()
            self._tending = [self._tend(pool) for pool in self._pools]
            tending = [asyncio.create_task(one.run()) for one in self._tending]
            for task in tending:
                task.add_done_callback(self._tending_ended)
            try:
                await self._stopping.wait()
                await self._drain()
                await self._settle_the_rest(tending)
            finally:
                for task in tending:
                    task.cancel()
                await asyncio.gather(*tending, return_exceptions=True)
        await self._learning.tend()
        with contextlib.suppress(StoreError):
            await self._store.put([Put(kind=worker_record.KIND, name=self.id, value=None)])

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for one in (task, stopping):
                one.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    def _tending_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_trouble(error)

    def _on_trouble(self, error: BaseException) -> None:
        """Something that should go on for ever has ended: say so and stop, rather than idle with half a worker."""
        _log.critical("the worker stops: %r", error, exc_info=error)
        self._fatal = error
        self.stop()

    async def _enter_lifespans(self, around: contextlib.AsyncExitStack) -> None:
        for lifespan in self._program.lifespans:
            try:
                manager = lifespan()
                if isinstance(manager, contextlib.AbstractAsyncContextManager):
                    given = await around.enter_async_context(manager)
                else:
                    given = around.enter_context(manager)
            except Exception as error:
                raise ChildImportFailed("".join(traceback.format_exception(error)).strip()) from error
            if isinstance(given, dict):
                self._shared.update(given)

    # -- pools ---------------------------------------------------------------------------------------------------------

    def _held(self) -> list[Lease]:
        # By fence, so that of two leases of one job the newer is the one that is kept.
        return sorted((lease for pool in self._pools for lease in pool.held()), key=lambda lease: lease.fence)

    def _heard(self, lease: Lease, answer: Extended) -> None:
        if not answer.held and any(pool.runs(lease) for pool in self._pools):
            telemetry.lost(lease)
        for pool in self._pools:
            pool.heard(lease, answer)

    @property
    def running(self) -> int:
        return sum(pool.in_hand for pool in self._pools)

    async def _close_pools(self) -> None:
        for pool in self._pools:
            await pool.children.close()

    # -- what was settled ----------------------------------------------------------------------------------------------

    def _tend(self, pool: Pool) -> ClaimLoop:
        return ClaimLoop(
            pool,
            self._source,
            self._world,
            lease_for=self.settings.lease_for,
            stopping=self._stopping,
            told=self._exchanged,
        )

    def _exchanged(self, taken: ExchangeResult) -> None:
        for settled in taken.settled:
            self._settled(settled)
        if self._ears is not None:
            for lease in taken.leases:
                self._ears.started(lease)

    def _settled(self, settled: Settled) -> None:
        if not settled.accepted:
            telemetry.lost(settled.lease)
            return
        state = settled.settlement.state
        if settled.lease.spec.options.timeout is not None:
            self._learn(settled)
        if state is State.COMPLETED:
            self.done += 1
        elif state in FINAL:
            self.failed += state is State.FAILED
        telemetry.settled(settled.lease, settled.settlement)
        if self._ears is not None:
            self._ears.settled(settled)

    def _learn(self, settled: Settled) -> None:
        """What ran to its end, or into its limit, says how long such jobs take; an error may come early."""
        settlement, lease = settled.settlement, settled.lease
        late = settlement.timeouts > lease.timeouts
        if late or settlement.state is State.COMPLETED:
            self._learning.ran(lease, settlement.ran / 1e6, late=late)

    # -- around it -----------------------------------------------------------------------------------------------------

    async def _listen(self, keeper: Heartbeats) -> None:
        watch = self._source.watch_requests()
        try:
            while True:
                if await watch.wait(POLL):
                    keeper.ask()
        finally:
            watch.close()

    async def _look_after(self) -> None:
        while True:
            for pool in self._pools:
                pool.busy.clear()
                await pool.look()
            await asyncio.sleep(LOOK_BUSY)
            if not self.running:
                await self._until_busy(LOOK_IDLE)

    async def _until_busy(self, seconds: float) -> None:
        """Until something is handed out, at most so long: what is short-lived must be looked at in time."""
        waiting = [asyncio.create_task(pool.busy.wait()) for pool in self._pools]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _tell_of_myself(self) -> None:
        rested = True
        while True:
            about = msgspec.structs.replace(
                self._about,
                running=self.running,
                done=self.done,
                failed=self.failed,
                stopping=self._stopping.is_set(),
            )
            rested = about == self._about and not rested  # with no news, every other time is enough
            if not rested:
                self._about = msgspec.structs.replace(about, seen_at=self._now())
                with contextlib.suppress(StoreError):  # the loop speaks of trouble with the store
                    await self._store.put([self._about.put()])
            await self._world.sleep(self.settings.lease_for)

    async def _forget_the_dead(self) -> None:
        with contextlib.suppress(StoreError):
            await worker_record.forget_the_dead(self._store, self._world)

    async def _stop_when_idle(self) -> None:
        """Once every job that this worker could run has ended, if that is wanted; paused queues do not count."""
        if not self.settings.until_idle:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(0.05)
            if self.running or any(pool.ended for pool in self._pools):
                continue
            if await is_idle(self._store, self._program, self._queues):
                self.stop()
                await asyncio.Event().wait()

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        for pool in self._pools:
            pool.drain()
        grace = self.settings.grace.total_seconds()
        if self.running and not self._hurry.is_set():
            _log.warning(
                "stopping: %s for at most %g s more; then, or at a second signal, handed back uncharged",
                counted(self.running, "job runs on", "jobs run on"),
                grace,
            )
        await self._wait_empty(grace)
        if self.running:
            for pool in self._pools:
                pool.stop_politely()
            await self._wait_empty(1.0)
        if self.running:
            for pool in self._pools:
                pool.stop_now()
            self._hurry.clear()
            await self._wait_empty(5.0)

    async def _wait_empty(self, seconds: float) -> None:
        """Until nothing is in hand, at most so long, and not at all if someone is in a hurry."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline and not self._hurry.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _settle_the_rest(self, tending: list[asyncio.Task[None]]) -> None:
        """Let exchanges that are under way come back: they may bring leases, which are handed back in their turn."""
        for one in self._tending:
            one.leaving = True
            one.pool.changed.set()
        _, late = await asyncio.wait(tending, timeout=10)
        if late:
            left = sum(len(pool.ended) + len(pool.reporting) for pool in self._pools)
            _log.error(
                "the store cannot be reached: %s",
                counted(left, "job is left to run out of its lease", "jobs are left to run out of their leases"),
            )
        _log.info("stopped: %d completed, %d failed", self.done, self.failed)


@contextlib.asynccontextmanager
async def _together(
    works: list[Coroutine[Any, Any, Any]], on_trouble: Callable[[BaseException], None]
) -> AsyncIterator[None]:
    """Run these beside the block; none should end before it."""

    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            on_trouble(error)

    tasks = [asyncio.create_task(work) for work in works]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        yield
    finally:
        for task in tasks:
            task.remove_done_callback(ended)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["ChildImportFailed", "Worker"]

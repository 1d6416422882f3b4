"""A worker: starts and stops its pools, and runs everything that they need."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from daybreak import telemetry
from daybreak.client.duration_stats import DurationStats
from daybreak.client.trend_counts import take_first_snapshot
from daybreak.client.trend_stats import TrendStats
from daybreak.core.errors import BadInput, StoreError
from daybreak.core.model import FINAL, Lease, Put, State
from daybreak.core.units import moment
from daybreak.files import FileStore
from daybreak.services.runner import default_services, run
from daybreak.store.protocol import Extended, OwnLoop, Store
from daybreak.system import patience
from daybreak.system.ports import Ids, World
from daybreak.telemetry import sdk
from daybreak.telemetry.attempt_spans import AttemptSpans
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.children import ChildImportFailed
from daybreak.worker.supervisor.claim_loop import POLL_INTERVAL, ClaimLoop
from daybreak.worker.supervisor.file_transfers import FileTransfers
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.idle_check import is_idle
from daybreak.worker.supervisor.job_logs import JobLogs
from daybreak.worker.supervisor.lease_source import ExchangeResult, LocalSource, Settled
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.shutdown import Shutdown

_log = logging.getLogger("daybreak.worker")

CHECK_INTERVAL: Final = 0.1  # seconds between two checks of the pools while jobs run
IDLE_CHECK_INTERVAL: Final = 1.0  # seconds between them while none runs
FIRST_SNAPSHOT_WITHIN: Final = 1.0  # seconds


class WorkerListener(Protocol):
    """What is called, in this process, when this worker starts and settles jobs, and when they report progress (the
    hooks of the app)."""

    def started(self, lease: Lease) -> None: ...

    def progressed(self, lease: Lease, fraction: float, message: str) -> None: ...

    def settled(self, settled: Settled) -> None: ...


class Worker:
    """The supervisor: claims jobs for its pools, and keeps their leases alive until they are settled.

    `listener` is called for jobs that start, report progress and end here. `background` are functions that run as long
    as the worker. `owns_process`: nothing else runs in this process, so the worker may set it up as the environment
    says. `exports_metrics` is published in the worker's record."""

    def __init__(
        self,
        store: Store,
        plan: ChildPlan,
        world: World,
        *,
        app: str = "",
        listener: WorkerListener | None = None,
        background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        program, settings = plan.program, plan.settings
        settings.check()
        if not len(program):
            raise BadInput("this app has no tasks: define one with @app.task, or name its module in imports=")
        self.id = f"{settings.name or 'worker'}-{Ids(world)()}"
        self.settings = settings
        self._store = store
        self._program = program
        self._plan = plan
        self._world = world
        self._listener = listener
        self._background = background
        self._queues = tuple(dict.fromkeys(settings.queues)) or program.queues()
        self._source = LocalSource(store, world, worker=self.id, queues=self._queues, lease_for=settings.lease_for)
        self._logs = self._source.logs = JobLogs(store, self._leases)
        self._files = FileStore(plan.blobs, store, world)
        self._durations = DurationStats(store, world)
        self._trends = TrendStats(store, world)
        self._shared: dict[str, Any] = {}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._fatal: BaseException | None = None
        self._pools: list[Pool] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._record = worker_record.WorkerRecord(
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
        self.owns_process = False
        self.exports_metrics = False
        self._spans: AttemptSpans | None = None

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- start and stop ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The first call: finish running jobs, within the grace time. The second call: stop now."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        for pool in self._pools:
            pool.changed.set()

    def stop_from_outside(self) -> None:
        """`stop` from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has stopped
                self._loop.call_soon_threadsafe(self.stop)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Wait until the worker is asked to stop, or stops by itself."""
        await self._stopping.wait()

    async def run(self) -> None:
        """Work until stopped. Raises if the worker cannot go on: the user's code cannot be imported, or the store is
        too new."""
        self._loop = asyncio.get_running_loop()
        patience.unbound()
        if isinstance(self._store, OwnLoop):
            self._store.own_loop()
        async with contextlib.AsyncExitStack() as stack:
            await self._enter_lifespans(stack)
            if self.owns_process:
                sdk.set_up_traces()
            self._spans = AttemptSpans.of_this_process()
            self._pools = self._plan.pools(self._shared)
            heartbeats = Heartbeats(
                self._source,
                self._world,
                lease_for=self.settings.lease_for,
                leases=self._leases,
                on_reply=self._on_heartbeat,
                on_progress=None if self._listener is None else self._listener.progressed,
            )
            transfers = FileTransfers(self._files)
            for pool in self._pools:
                pool.use_files(transfers)
                pool.use_logs(self._logs)
                pool.use_heartbeats(heartbeats)
                pool.use_limits(self._durations.limit_of)
                pool.use_spans(self._spans)
            stack.push_async_callback(self._close_pools)
            for pool in self._pools:
                await pool.children.open(pool)
            for pool in self._pools:
                await self._until_stopped(pool.children.wait_until_ready())
            await self._work(heartbeats)
        if self._fatal is not None:
            raise self._fatal

    async def _work(self, heartbeats: Heartbeats) -> None:
        await self._begin_trends()
        services = default_services(
            self._store,
            self._world,
            name=self.id,
            lease_for=self.settings.lease_for,
            on_reaped=None if self._spans is None else self._spans.settled,
            files=self._files,
        )
        background = [
            heartbeats.run(),
            self._watch_requests(heartbeats),
            self._check_pools(),
            self._publish_record(),
            self._durations.run(),
            self._trends.run(),
            self._logs.run(),
            self._source.run(),
            self._remove_dead_workers(),
            run(services, self._world),
            self._stop_when_idle(),
            *(start() for start in self._background),
        ]
        async with _run_beside(background, self._on_fatal):
            self.is_ready.set()
            loops = [self._claim_loop(pool) for pool in self._pools]
            running = [asyncio.create_task(loop.run()) for loop in loops]
            for task in running:
                task.add_done_callback(self._on_loop_ended)
            shutdown = Shutdown(self._pools, self._hurry, grace=self.settings.grace.total_seconds())
            try:
                await self._stopping.wait()
                await shutdown.drain()
                await shutdown.report_rest(loops, running)
                _log.info("stopped: %d completed, %d failed", self.done, self.failed)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        await self._durations.sync()
        await self._trends.merge()
        with contextlib.suppress(StoreError):
            await self._store.put([Put(kind=worker_record.KIND, name=self.id, value=None)])

    async def _begin_trends(self) -> None:
        """Take the first snapshot of a new store before its first job runs, or its first jobs would belong to no
        period. A store that does not answer within a second delays no job."""
        try:
            async with asyncio.timeout(FIRST_SNAPSHOT_WITHIN):
                await take_first_snapshot(self._store, self._now())
        except (StoreError, TimeoutError) as error:
            _log.info("could not take the first snapshot of the trends: %s", str(error) or "the store did not answer")
        except Exception:  # noqa: BLE001 - a worker must not stop because of its statistics
            _log.exception("could not take the first snapshot of the trends")

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

    def _on_loop_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._on_fatal(error)

    def _on_fatal(self, error: BaseException) -> None:
        """A part that must run forever has failed: log it and stop, instead of going on with half a worker."""
        _log.critical("the worker stops: %r", error, exc_info=error)
        self._fatal = error
        self.stop()

    async def _enter_lifespans(self, stack: contextlib.AsyncExitStack) -> None:
        for lifespan in self._program.lifespans:
            try:
                manager = lifespan()
                if isinstance(manager, contextlib.AbstractAsyncContextManager):
                    returned = await stack.enter_async_context(manager)
                else:
                    returned = stack.enter_context(manager)
            except Exception as error:
                raise ChildImportFailed("".join(traceback.format_exception(error)).strip()) from error
            if isinstance(returned, dict):
                self._shared.update(returned)

    # -- pools ---------------------------------------------------------------------------------------------------------

    def _leases(self) -> list[Lease]:
        # Sort by fence: the heartbeats keep one lease per job, and of two leases of one job that must be the newer.
        return sorted((lease for pool in self._pools for lease in pool.leases()), key=lambda lease: lease.fence)

    def _on_heartbeat(self, lease: Lease, reply: Extended) -> None:
        if not reply.held and any(pool.holds(lease) for pool in self._pools):
            telemetry.lost(lease)
        for pool in self._pools:
            pool.on_heartbeat(lease, reply)

    @property
    def running(self) -> int:
        return sum(pool.held_count for pool in self._pools)

    async def _close_pools(self) -> None:
        for pool in self._pools:
            await pool.children.close()

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def _claim_loop(self, pool: Pool) -> ClaimLoop:
        return ClaimLoop(
            pool,
            self._source,
            self._world,
            lease_for=self.settings.lease_for,
            stopping=self._stopping,
            on_exchanged=self._on_exchanged,
        )

    def _on_exchanged(self, result: ExchangeResult) -> None:
        for settled in result.settled:
            self._on_settled(settled)
        if self._listener is not None:
            for lease in result.leases:
                self._listener.started(lease)

    def _on_settled(self, settled: Settled) -> None:
        if not settled.accepted:
            telemetry.lost(settled.lease)
            return
        state = settled.settlement.state
        if settled.lease.spec.options.timeout is not None:
            self._record_duration(settled)
        self._trends.note(settled.lease, settled.settlement)
        if state is State.COMPLETED:
            self.done += 1
        elif state in FINAL:
            self.failed += state is State.FAILED
        telemetry.settled(settled.lease, settled.settlement)
        if self._spans is not None:
            self._spans.settled(settled.lease, settled.settlement)
        if self._listener is not None:
            self._listener.settled(settled)

    def _record_duration(self, settled: Settled) -> None:
        """Record how long a job ran that completed or timed out. A job that failed may have ended early."""
        settlement, lease = settled.settlement, settled.lease
        late = settlement.timeouts > lease.timeouts
        if late or settlement.state is State.COMPLETED:
            self._durations.ran(lease, settlement.ran / 1e6, late=late)

    # -- background ----------------------------------------------------------------------------------------------------

    async def _watch_requests(self, heartbeats: Heartbeats) -> None:
        """Send heartbeats at once when someone wants to cancel or suspend a job of this worker."""
        watch = self._source.watch_requests()
        try:
            while True:
                if await watch.wait(POLL_INTERVAL):
                    heartbeats.send_now()
        finally:
            watch.close()

    async def _check_pools(self) -> None:
        while True:
            for pool in self._pools:
                pool.busy.clear()
                await pool.check()
            await asyncio.sleep(CHECK_INTERVAL)
            if not self.running:
                await self._until_busy(IDLE_CHECK_INTERVAL)

    async def _until_busy(self, seconds: float) -> None:
        """Wait until a pool gets a lease, for at most so long: a job with a short time limit must be checked in
        time."""
        waiting = [asyncio.create_task(pool.busy.wait()) for pool in self._pools]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _publish_record(self) -> None:
        """Publish the record of this worker once per lease; while it does not change, every second time."""
        was_skipped = True
        while True:
            record = msgspec.structs.replace(
                self._record,
                running=self.running,
                done=self.done,
                failed=self.failed,
                stopping=self._stopping.is_set(),
                exports_metrics=self.exports_metrics,
            )
            was_skipped = record == self._record and not was_skipped
            if not was_skipped:
                self._record = msgspec.structs.replace(record, seen_at=self._now())
                with contextlib.suppress(StoreError):  # the claim loop logs that the store is away
                    await self._store.put([self._record.put()])
            await self._world.sleep(self.settings.lease_for)

    async def _remove_dead_workers(self) -> None:
        with contextlib.suppress(StoreError):
            await worker_record.remove_dead_workers(self._store, self._world)

    async def _stop_when_idle(self) -> None:
        """With `until_idle`, stop once every job that this worker could run has ended; paused queues do not count."""
        if not self.settings.until_idle:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(0.05)
            if self.running or any(pool.ended for pool in self._pools):
                continue
            if await is_idle(self._store, self._program, self._queues):
                self.stop()
                await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _run_beside(
    coroutines: list[Coroutine[Any, Any, Any]], on_error: Callable[[BaseException], None]
) -> AsyncIterator[None]:
    """Run these while the block runs, and cancel them at its end. `on_error` is called if one of them fails."""

    def on_done(task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                on_error(error)

    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    for task in tasks:
        task.add_done_callback(on_done)
    try:
        yield
    finally:
        for task in tasks:
            task.remove_done_callback(on_done)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


__all__ = ["ChildImportFailed", "Worker"]

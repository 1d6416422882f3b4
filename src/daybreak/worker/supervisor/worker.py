"""A worker: starts and stops its pools, and runs everything that they need."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from daybreak import telemetry
from daybreak.core.errors import BadInput
from daybreak.core.model import FINAL, Lease, State
from daybreak.store.protocol import Extended
from daybreak.system import patience
from daybreak.system.ports import Clock, World
from daybreak.telemetry import sdk
from daybreak.telemetry.attempt_spans import AttemptSpans
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.children import ChildImportFailed
from daybreak.worker.supervisor.claim_loop import POLL_INTERVAL, ClaimLoop
from daybreak.worker.supervisor.file_transfers import FileTransfers
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.lease_source import ExchangeResult, Settled
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.shutdown import Shutdown
from daybreak.worker.supervisor.worker_source import WorkerSource

_log = logging.getLogger("daybreak.worker")

CHECK_INTERVAL: Final = 0.1  # seconds between two checks of the pools while jobs run
IDLE_CHECK_INTERVAL: Final = 1.0  # seconds between them while none runs
IDLE_POLL_INTERVAL: Final = 0.05  # seconds between two checks with `until_idle`


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
        source: WorkerSource,
        plan: ChildPlan,
        world: World,
        *,
        listener: WorkerListener | None = None,
        background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        plan.settings.check()
        if not len(plan.program):
            raise BadInput("this app has no tasks: define one with @app.task, or name its module in imports=")
        self.id = source.worker
        self.settings = plan.settings
        self._source = source
        self._plan = plan
        self._world = world
        self._clock = Clock(world)
        self._listener = listener
        self._background = background
        self._shared: dict[str, Any] = {}
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._fatal: BaseException | None = None
        self._pools: list[Pool] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.done = 0
        self.failed = 0
        self.is_ready = asyncio.Event()
        self.owns_process = False
        self.exports_metrics = False
        self.spans: AttemptSpans | None = None

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
        self._source.open(self)
        async with contextlib.AsyncExitStack() as stack:
            await self._enter_lifespans(stack)
            if self.owns_process:
                sdk.set_up_traces()
            self.spans = AttemptSpans.of_this_process()
            self._pools = self._plan.pools(self._shared, self._clock)
            heartbeats = Heartbeats(
                self._source,
                self._world,
                lease_for=self.settings.lease_for,
                leases=self.leases,
                on_reply=self._on_heartbeat,
                on_progress=None if self._listener is None else self._listener.progressed,
            )
            transfers = FileTransfers(self._source.contents, self._clock)
            for pool in self._pools:
                pool.use_files(transfers)
                pool.use_output(self._source.output)
                pool.use_heartbeats(heartbeats)
                pool.use_limits(self._source.limit_of)
                pool.use_spans(self.spans)
            stack.push_async_callback(self._close_pools)
            for pool in self._pools:
                await pool.children.open(pool)
            for pool in self._pools:
                await self._until_stopped(pool.children.wait_until_ready())
            await self._work(heartbeats)
        if self._fatal is not None:
            raise self._fatal

    async def _work(self, heartbeats: Heartbeats) -> None:
        await self._source.begin()
        background = [
            heartbeats.run(),
            self._watch_requests(heartbeats),
            self._check_pools(),
            self._stop_when_idle(),
            *self._source.background(),
            *(start() for start in self._background),
        ]
        async with _run_beside(background, self._on_fatal):
            self.is_ready.set()
            loops = [self._claim_loop(pool) for pool in self._pools]
            running = [asyncio.create_task(loop.run()) for loop in loops]
            for task in running:
                task.add_done_callback(self._on_loop_ended)
            shutdown = Shutdown(self._pools, self._hurry, self._clock, grace=self.settings.grace.total_seconds())
            try:
                await self._stopping.wait()
                await shutdown.drain()
                await shutdown.report_rest(loops, running)
                _log.info("stopped: %d completed, %d failed", self.done, self.failed)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        await self._source.close()

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
        for lifespan in self._plan.program.lifespans:
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

    def leases(self) -> list[Lease]:
        # Sort by fence: the heartbeats keep one lease per job, and of two leases of one job that must be the newer.
        return sorted((lease for pool in self._pools for lease in pool.leases()), key=lambda lease: lease.fence)

    def children(self) -> list[Child]:
        return [child for pool in self._pools for child in pool.children.holding]

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
        for lease, detached in result.detached:
            telemetry.detached(lease, detached.deadline)
            if self.spans is not None:
                self.spans.detached(lease)
        if self._listener is not None:
            for lease in result.leases:
                self._listener.started(lease)

    def _on_settled(self, settled: Settled) -> None:
        if not settled.accepted:
            telemetry.lost(settled.lease)
            return
        state = settled.settlement.state
        self._source.settled(settled)
        if state is State.COMPLETED:
            self.done += 1
        elif state in FINAL:
            self.failed += state is State.FAILED
        telemetry.settled(settled.lease, settled.settlement)
        if self.spans is not None:
            self.spans.settled(settled.lease, settled.settlement)
        if self._listener is not None:
            self._listener.settled(settled)

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
            await self._clock.sleep(CHECK_INTERVAL)
            if not self.running:
                await self._until_busy(IDLE_CHECK_INTERVAL)

    async def _until_busy(self, seconds: float) -> None:
        """Wait until a pool gets a lease, for at most so long: a job with a short time limit must be checked in
        time."""
        waiting = [asyncio.create_task(pool.busy.wait()) for pool in self._pools]
        try:
            await self._clock.wait(waiting, seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _stop_when_idle(self) -> None:
        """With `until_idle`, stop once every job that this worker could run has ended; paused queues do not count."""
        if not self.settings.until_idle:
            await asyncio.Event().wait()
        while True:
            await self._clock.sleep(IDLE_POLL_INTERVAL)
            if self.running or any(pool.ended for pool in self._pools):
                continue
            if await self._source.is_idle():
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

"""The source of a worker that reaches the store itself: leases, and the worker record, learning and services."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from daybreak.client.duration_stats import DurationStats
from daybreak.client.trend_counts import take_first_snapshot
from daybreak.client.trend_stats import TrendStats
from daybreak.core.errors import StoreError
from daybreak.core.model import Ending, Lease, Put, State
from daybreak.core.units import moment
from daybreak.files import FileStore
from daybreak.services.reaper import OnSettled
from daybreak.services.runner import Service, default_services, run
from daybreak.store.protocol import OwnLoop, Store
from daybreak.system.ports import Clock, Ids, World
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.idle_check import is_idle
from daybreak.worker.supervisor.job_logs import JobLogs
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, LocalSource, Settled
from daybreak.worker.supervisor.stack_requests import StackRequests
from daybreak.worker.supervisor.worker_source import RunningWorker

_log = logging.getLogger("daybreak.worker")

FIRST_SNAPSHOT_WITHIN: Final = 1.0  # seconds


class StoreSource(LocalSource):
    """The local source of a worker. `hold_for` is the length of claimed leases, if that is not the worker's own. With
    `sends_to` the worker runs no jobs itself but sends them to this address, and its record says so."""

    def __init__(
        self,
        store: Store,
        plan: ChildPlan,
        world: World,
        *,
        app: str = "",
        hold_for: timedelta | None = None,
        sends_to: str = "",
    ) -> None:
        settings, program = plan.settings, plan.program
        queues = tuple(dict.fromkeys(settings.queues)) or program.queues()
        self._world = world
        worker = self._new_identity(settings.name)
        super().__init__(store, world, worker=worker, queues=queues, lease_for=hold_for or settings.lease_for)
        self._own_lease = settings.lease_for
        self._program = program
        self._clock = Clock(world)
        self.output = self.logs = JobLogs(store, self._clock, self._leases)
        self.contents = FileStore(plan.blobs, store, world)
        self._durations = DurationStats(store, world)
        self._trends = TrendStats(store, world)
        self._worker: RunningWorker | None = None
        self._stacks = StackRequests(store, world, worker, self._children)
        self._record = worker_record.record_of(plan, worker, queues, self._now(), app=app)
        if sends_to:
            nothing = {
                "via": sends_to,
                "tasks": (),
                "code": {},
                "on_loop": (),
                "batches": (),
                "processes": 0,
                "async_jobs": 0,
            }
            self._record = msgspec.structs.replace(self._record, **nothing)

    def _new_identity(self, name: str | None) -> str:
        """Unique per start."""
        return f"{name or 'worker'}-{Ids(self._world)()}"

    def _now(self) -> datetime:
        return moment(self._world.wall())

    def _leases(self) -> list[Lease]:
        return [] if self._worker is None else self._worker.leases()

    def _children(self) -> list[Child]:
        return [] if self._worker is None else self._worker.children()

    # -- start and stop ------------------------------------------------------------------------------------------------

    def open(self, worker: RunningWorker) -> None:
        self._worker = worker
        if isinstance(self._store, OwnLoop):
            self._store.own_loop()

    async def begin(self) -> None:
        """Take the first snapshot of a new store before its first job runs, or its first jobs would belong to no
        period. A store that does not answer within a second delays no job."""
        try:
            async with self._clock.timeout(FIRST_SNAPSHOT_WITHIN):
                await take_first_snapshot(self._store, self._now())
        except (StoreError, TimeoutError) as error:
            _log.info("could not take the first snapshot of the trends: %s", str(error) or "the store did not answer")
        except Exception:  # noqa: BLE001 - a worker must not stop because of its statistics
            _log.exception("could not take the first snapshot of the trends")

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        assert self._worker is not None
        spans = self._worker.spans
        return [
            self._publish_record(self._worker),
            self._durations.run(),
            self._trends.run(),
            self.output.run(),
            self._stacks.run(),
            self.run(),
            self._remove_dead_workers(),
            run(self._services(None if spans is None else spans.settled), self._world),
        ]

    def _services(self, on_reaped: OnSettled | None) -> Sequence[Service]:
        return default_services(
            self._store,
            self._world,
            name=self.worker,
            lease_for=self._own_lease,
            on_reaped=on_reaped,
            files=self.contents,
        )

    async def close(self) -> None:
        await self._durations.sync()
        await self._trends.merge()
        with contextlib.suppress(StoreError):
            await self._stacks.forget_all()
            await self._store.put([Put(kind=worker_record.KIND, name=self.worker, value=None)])

    async def is_idle(self) -> bool:
        return await is_idle(self._store, self._program, self.queues)

    # -- learning ------------------------------------------------------------------------------------------------------

    def limit_of(self, lease: Lease) -> timedelta | None:
        return self._durations.limit_of(lease)

    async def exchange(
        self, ended: Sequence[tuple[Lease, Ending]], claim: ClaimRequest | None, *, by: str | None = None
    ) -> ExchangeResult:
        result = await super().exchange(ended, claim, by=by)
        for lease, _ in result.detached:
            self._trends.note_detached(lease)
        return result

    def settled(self, settled: Settled) -> None:
        if settled.lease.spec.options.timeout is not None:
            self._record_duration(settled)
        self._trends.note(settled.lease, settled.settlement)

    def _record_duration(self, settled: Settled) -> None:
        """Record how long a job ran that completed or timed out. A job that failed may have ended early."""
        settlement, lease = settled.settlement, settled.lease
        late = settlement.timeouts > lease.timeouts
        if late or settlement.state is State.COMPLETED:
            self._durations.ran(lease, settlement.ran / 1e6, late=late)

    # -- the record ----------------------------------------------------------------------------------------------------

    async def _publish_record(self, worker: RunningWorker) -> None:
        """Publish the record of this worker once per lease; while it does not change, every second time."""
        was_skipped = True
        while True:
            record = msgspec.structs.replace(
                self._record,
                running=worker.running,
                done=worker.done,
                failed=worker.failed,
                stopping=worker.is_stopping,
                exports_metrics=worker.exports_metrics,
            )
            was_skipped = record == self._record and not was_skipped
            if not was_skipped:
                memory, children = worker_record.memory_now(child.handle.pid for child in worker.children())
                self._record = msgspec.structs.replace(record, seen_at=self._now(), memory=memory, children=children)
                with contextlib.suppress(StoreError):  # the claim loop logs that the store is away
                    await self._store.put([self._record.put()])
            await self._world.sleep(self._own_lease)

    async def _remove_dead_workers(self) -> None:
        with contextlib.suppress(StoreError):
            await worker_record.remove_dead_workers(self._store, self._world)

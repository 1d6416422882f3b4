"""The ledger's side: a worker that does not run. It claims jobs, sends them as messages, and applies what comes back.

Several dispatchers may run on one store and prefix: leases are fenced, and deliveries are bound by compare-and-set."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from daybreak import telemetry
from daybreak.core.errors import StoreError, StoreTooNew, TooLarge
from daybreak.core.model import Cancelled, Failed, Failure, HandedBack, Lease, Outcome, Put, State, Suspended
from daybreak.files import Blobs
from daybreak.sqs import messages as wire
from daybreak.sqs import queue_names as names
from daybreak.sqs.claim_check import ClaimCheck
from daybreak.sqs.deliveries import Deliveries
from daybreak.sqs.dispatched import DEPTH, Dispatched
from daybreak.sqs.grants import RETRY_IN, Grant, Grants, NotGranted
from daybreak.sqs.ledger import Applied, Ledger
from daybreak.sqs.queues import QueueMissing, Received, SqsQueues
from daybreak.sqs.remote_workers import RemoteWorkers
from daybreak.sqs.set_aside import set_aside
from daybreak.sqs.setup import tell_files
from daybreak.store.protocol import Filter, Store
from daybreak.system.ports import World
from daybreak.telemetry.attempt_spans import AttemptSpans
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.exchange_retry import ExchangeRetry
from daybreak.worker.supervisor.lease_source import ClaimRequest, Settled
from daybreak.worker.supervisor.store_source import StoreSource
from daybreak.worker.supervisor.worker import WorkerListener

_log = logging.getLogger("daybreak.sqs")

VALID_FOR: Final = timedelta(minutes=5)  # after that a message is not run, and the job is handed back
CHECK_INTERVAL: Final = 1.0  # seconds between two looks at what nobody took
SWEEP_INTERVAL: Final = 60.0  # seconds
CONTROL_KEPT_FOR: Final = timedelta(hours=1)  # the control queue of a worker that is silent
STOP_TIMEOUT: Final = 10.0  # seconds
PAUSE: Final = 1.0  # seconds after an error
POLL: Final = timedelta(seconds=5)
KIND: Final = "sqs"  # the record with the name of this ledger


class Dispatcher:
    """`depth` is how many messages of a bucket may wait; `missed` how many heartbeats a worker may miss. `grant` makes
    what a job may reach where it runs."""

    exports_metrics = False
    owns_process = False

    def __init__(
        self,
        store: Store,
        queues: SqsQueues,
        plan: ChildPlan,
        world: World,
        *,
        app: str = "",
        blobs: Blobs | None = None,
        depth: int = DEPTH,
        missed: int = 3,
        valid_for: timedelta = VALID_FOR,
        consumers: int = 2,
        grant: Grant | None = None,
        wait: int = names.LEDGER_POLL,
        listener: WorkerListener | None = None,
        background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self._store = store
        self._queues = queues
        self._plan = plan
        self._world = world
        self._blobs = blobs
        self._valid_for = valid_for
        self._consumers = consumers
        self._wait = wait
        self._listener = listener
        self._background = background
        via = str(queues.address)
        self._source = StoreSource(store, plan, world, app=app, hold_for=2 * valid_for, sends_to=via)
        self.id = self._source.worker
        self._retry = ExchangeRetry(self._source, world, lease_for=plan.settings.lease_for)
        self._checks = ClaimCheck(blobs)
        self._grants = Grants(grant, plan.program, valid_for)
        self._deliveries = Deliveries(store, world, missed=missed)
        self._workers = RemoteWorkers(store, world, via=via)
        self._dispatched = Dispatched(depth)
        self._next_in = POLL.total_seconds()
        self._calls = itertools.count(1)
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self.is_ready = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.done = 0
        self.failed = 0
        self.spans: AttemptSpans | None = None

    # -- as its source sees it -----------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self._dispatched)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def leases(self) -> list[Lease]:
        return self._dispatched.leases()

    def children(self) -> list[Child]:
        """None: it runs nothing."""
        return []

    def stop(self) -> None:
        self._stopping.set()

    def stop_from_outside(self) -> None:
        """`stop` from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the dispatcher has stopped
                self._loop.call_soon_threadsafe(self.stop)

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Dispatch until stopped. Jobs that lie in task queues when it stops go back uncharged."""
        self._loop = asyncio.get_running_loop()
        self._source.open(self)
        self.spans = AttemptSpans.of_this_process()
        await self._source.begin()
        prefix = self._queues.address.prefix
        if self._blobs is not None:
            await tell_files(self._queues, self._blobs.location)
        else:
            await self._queues.url(names.status_queue(prefix))  # raises at once if there is no such queue
        ledger_id = await ledger_name(self._store, prefix)
        ledger = Ledger(
            self._store, self._source, self._world, ledger=ledger_id, checks=self._checks,
            deliveries=self._deliveries, workers=self._workers, on_settled=self._on_settled,
        )  # fmt: skip
        parts = [
            self._dispatch(ledger_id),
            *(self._consume(names.status_queue(prefix), ledger.apply) for _ in range(self._consumers)),
            self._consume(names.retry_queue(prefix), ledger.apply),
            self._consume(names.task_dead_queue(prefix), ledger.apply_dead),
            self._take_back_unclaimed(),
            self._watch_work(),
            self._watch_requests(),
            self._sweep(),
            *self._source.background(),
            *(start() for start in self._background),
        ]
        tasks = [asyncio.create_task(part) for part in parts]
        stopping = asyncio.create_task(self._stopping.wait())
        self.is_ready.set()
        try:
            pending = {*tasks, stopping}
            while not stopping.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # a part that failed stops the dispatcher; one that has ended does not
            await self._stop_dispatching(tasks[0])
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await self._source.close()

    async def _stop_dispatching(self, dispatching: asyncio.Task[Any]) -> None:
        """Claim nothing more, and hand back what nobody has begun, as far as the store can be reached in time."""
        dispatching.cancel()
        await asyncio.gather(dispatching, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._hand_back(self._dispatched.leases())

    # -- out -----------------------------------------------------------------------------------------------------------

    async def _dispatch(self, ledger: str) -> None:
        while True:
            self._wake.clear()
            try:
                found = await self._claim()
                beyond = self._dispatched.beyond_depth(found)
                await self._end([(lease, HandedBack(unused=True)) for lease in beyond])
                if len(found) > len(beyond):
                    sent = [lease for lease in found if lease not in beyond]
                    self._dispatched.add(sent)
                    await self._send(ledger, sent)
                    continue
            except StoreTooNew:
                raise
            except StoreError as error:
                _log.warning("dispatch: %s; trying again in %g s", error, PAUSE)
                await asyncio.sleep(PAUSE)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next_in):
                    await self._wake.wait()

    async def _claim(self) -> list[Lease]:
        """Claim what the task queues have room for. Nothing has begun: a lease that lapses here charges nothing."""
        self._next_in = POLL.total_seconds()
        room = self._dispatched.room(await self._queued())
        if not room and len(self._dispatched) < self._dispatched.depth:
            room = 1  # a claim also queues what has fallen due, and says when the next job will
        request = ClaimRequest(self._plan.program.known(), room, f"dispatch{next(self._calls)}", begins=0)
        result, _ = await self._retry.exchange([], request if room else None)
        if result.next_in is not None:
            self._next_in = min(max(result.next_in.total_seconds(), 0.01), self._next_in)
        if self._listener is not None:
            for lease in result.leases:
                self._listener.started(lease)
        return result.leases

    async def _queued(self) -> dict[int, int]:
        """How many jobs are queued, by priority."""
        found: dict[int, int] = {}
        known = self._plan.program.known()
        states = frozenset({State.QUEUED})
        for queue in self._source.queues:
            for tally in await self._store.count(Filter(states=states, queue=queue)):
                if (tally.task, tally.version) in known:
                    found[tally.priority] = found.get(tally.priority, 0) + tally.n
        return found

    async def _send(self, ledger: str, leases: list[Lease]) -> None:
        """Send leases as messages; those that cannot be sent go back. Killed before or during this, the leases lapse,
        and the jobs are claimed anew, uncharged."""
        prefix = self._queues.address.prefix
        bodies: dict[str, list[tuple[Lease, str]]] = {}
        for lease in leases:
            try:
                body = wire.written(await self._message(ledger, lease))
            except TooLarge as error:
                failure = Failure(message=str(error), kinds=("TooLarge",), verdict="permanent")
                await self._end([(lease, Failed(failure))])
                continue
            except NotGranted:
                await self._end([(lease, HandedBack(delay=RETRY_IN, unused=True))])
                continue
            bodies.setdefault(names.task_queue(prefix, names.bucket_of(lease.priority)), []).append((lease, body))
        for queue, batch in bodies.items():
            try:
                await self._queues.send(queue, [body for _, body in batch])
            except StoreError:
                # Some may have been sent: whoever takes one of them is told to drop it.
                await self._hand_back([lease for lease, _ in batch])
                raise

    async def _message(self, ledger: str, lease: Lease) -> wire.TaskMessage:
        args = await self._checks.check_in(lease.spec.args)
        assert args is not None
        limit = self._source.limit_of(lease) if lease.spec.options.timeout is not None else None
        return wire.TaskMessage(
            v=wire.VERSION,
            ledger=ledger,
            task_id=lease.job,
            fence=lease.fence,
            attempt=lease.attempt,
            job=replace(await self._grants.granted(lease), args=b"{}"),
            args=args,
            seq=lease.seq,
            priority=lease.priority,
            valid_for=self._valid_for.total_seconds(),
            created_at=lease.created_at.isoformat(),
            lost=lease.lost,
            timeouts=lease.timeouts,
            limit=None if limit is None else limit.total_seconds(),
            checkpoint=await self._checks.check_in(lease.checkpoint),
        )

    # -- back ----------------------------------------------------------------------------------------------------------

    async def _consume(self, queue: str, apply: Callable[[Sequence[Received]], Coroutine[Any, Any, Applied]]) -> None:
        """Commit to the store first, then delete the messages: a kill in between applies them twice, which is
        harmless."""
        while True:
            try:
                received = await self._queues.receive(queue, wait=self._wait)
                if received:
                    await self._follow_up(await apply(received))
            except StoreTooNew:
                raise
            except StoreError as error:
                # What was received comes again after its visibility timeout.
                _log.warning("%s: %s; trying again in %g s", queue, error, PAUSE)
                await asyncio.sleep(PAUSE)

    async def _follow_up(self, applied: Applied) -> None:
        await self._send_requests(applied)
        await set_aside(self._queues, applied.refused)
        await self._queues.delete(applied.done)
        if self._dispatched.remove([*applied.begun, *applied.ended]) or applied.ended:
            self._wake.set()

    async def _send_requests(self, applied: Applied) -> None:
        for worker, request in applied.requests:
            queue = names.control_queue(self._queues.address.prefix, worker)
            try:
                await self._queues.send(queue, [wire.written(request)])
            except QueueMissing:
                _log.info("worker %s is gone: nobody to tell %s of job %s", worker, request.what, request.task_id)
                self._queues.forget(queue)

    def _on_settled(self, settled: Settled) -> None:
        if not settled.accepted:
            telemetry.lost(settled.lease)
            return
        self._source.settled(settled)
        state = settled.settlement.state
        self.done += state is State.COMPLETED
        self.failed += state is State.FAILED
        telemetry.settled(settled.lease, settled.settlement)
        if self.spans is not None:
            self.spans.settled(settled.lease, settled.settlement)
        if self._listener is not None:
            self._listener.settled(settled)

    # -- what lies in task queues --------------------------------------------------------------------------------------

    async def _end(self, ended: list[tuple[Lease, Outcome]]) -> None:
        if ended:
            result, _ = await self._retry.exchange(ended, None)
            for settled in result.settled:
                self._on_settled(settled)
            if self._dispatched.remove((lease.job, lease.fence) for lease, _ in ended):
                self._wake.set()

    async def _hand_back(self, leases: list[Lease]) -> None:
        await self._end([(lease, HandedBack(unused=True)) for lease in await self._not_begun(leases)])

    async def _not_begun(self, leases: list[Lease]) -> list[Lease]:
        """Those that no worker has begun. Another dispatcher may have received the message that says so."""
        found: list[Lease] = []
        for lease in leases:
            if await self._deliveries.of(lease.job, lease.fence) is None:
                found.append(lease)
            else:
                self._dispatched.remove([(lease.job, lease.fence)])
        return found

    async def _take_back_unclaimed(self) -> None:
        """Hand back what nobody took. Its message may still be taken: then it is too old to be run."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            old = self._dispatched.older_than(self._valid_for.total_seconds())
            if old:
                _log.info("%d jobs were taken by no worker for %s: handing back", len(old), self._valid_for)
                await self._hand_back(old)

    async def _watch_work(self) -> None:
        watch = self._source.watch_work()
        try:
            while True:
                await watch.wait(POLL)
                self._wake.set()
        finally:
            watch.close()

    async def _watch_requests(self) -> None:
        """A person wants to cancel or suspend a job: do it at once where nobody has begun it. A running one hears of it
        with its next heartbeat."""
        watch = self._source.watch_requests()
        try:
            while True:
                await watch.wait(POLL)
                with contextlib.suppress(StoreError):
                    await self._answer_requests()
        finally:
            watch.close()

    async def _answer_requests(self) -> None:
        leases = self._dispatched.leases()
        if not leases:
            return
        ended: list[tuple[Lease, Outcome]] = []
        # Read, not extended: a worker may have begun the job meanwhile, and its heartbeats alone keep the lease then.
        for lease, job in zip(leases, await self._store.get([lease.job for lease in leases]), strict=True):
            if job is None or job.state is not State.RUNNING or job.fence != lease.fence:
                self._dispatched.remove([(lease.job, lease.fence)])
            elif job.cancelling:
                ended.append((lease, Cancelled()))
            elif job.suspending:
                ended.append((lease, Suspended()))
        waiting = {lease.job for lease in await self._not_begun([lease for lease, _ in ended])}
        await self._end([(lease, outcome) for lease, outcome in ended if lease.job in waiting])

    async def _sweep(self) -> None:
        """Delete what kills left behind: records of deliveries, control queues of workers that are gone."""
        while True:
            try:
                await self._deliveries.sweep()
                for worker in self._workers.silent(CONTROL_KEPT_FOR):
                    queue = names.control_queue(self._queues.address.prefix, worker)
                    with contextlib.suppress(QueueMissing):
                        await self._queues.call("delete_queue", QueueUrl=await self._queues.url(queue))
                    self._queues.forget(queue)
            except StoreError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(SWEEP_INTERVAL)


async def ledger_name(store: Store, prefix: str) -> str:
    """The name of this store on this prefix, made once."""
    while True:
        found = await store.records(KIND, prefix)
        if found:
            return str(msgspec.json.decode(found[0].value))
        await store.put([Put(kind=KIND, name=prefix, value=msgspec.json.encode(secrets.token_hex(8)), expect=0)])

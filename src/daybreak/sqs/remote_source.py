"""The source of a worker that reaches nothing but SQS: leases are task messages, outcomes are status messages.

A task message is deleted only after its outcome was accepted by the status queue. The worker never decides what
becomes of a job: it reports how a delivery ended, and the ledger's side runs the policy."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadFile, BadInput, StoreCorrupt, StoreError, TooLarge
from daybreak.core.model import Detached, Done, Ending, Failed, Failure, HandedBack, Lease, Suspended
from daybreak.core.units import moment
from daybreak.files import Blobs
from daybreak.policy.retry import classify
from daybreak.policy.settle import settle
from daybreak.sqs import messages as wire
from daybreak.sqs import queue_names as names
from daybreak.sqs.claim_check import ClaimCheck
from daybreak.sqs.control import ControlQueue
from daybreak.sqs.queues import Received, SqsQueues
from daybreak.sqs.set_aside import set_aside
from daybreak.sqs.spot_notice import SpotNotice
from daybreak.sqs.task_polls import TaskPolls
from daybreak.store.protocol import Beat, Extended
from daybreak.stores.wakeups import Wakeups
from daybreak.system.ports import Ids, World
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.child_plan import ChildPlan
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, Settled
from daybreak.worker.supervisor.time_limits import written_limit
from daybreak.worker.supervisor.worker_source import RunningWorker

_log = logging.getLogger("daybreak.sqs")

BEATS_PER_MESSAGE: Final = 50
UNWANTED_AFTER: Final = 2.0  # seconds after which a message that was received for no free slot is handed back
MAX_TAKEN: Final = 100_000  # fences that are remembered
UNKNOWN_TASK_DELAY: Final = timedelta(seconds=5)
IDLE_AFTER: Final = 3.0  # seconds without a message
DELIVERY_META: Final = "delivery"  # the key under which a task finds its nonce in ctx.meta
_WORK, _REQUESTS = "work", "requests"


class Held(Struct):
    """A delivery that this worker holds. `checkpoint` is the latest one, and `saved` counts them."""

    message: Received
    task: wire.TaskMessage
    delivery: wire.Delivery
    lease: Lease
    checkpoint: bytes | None = None
    saved: int = 0
    is_extended: bool = True


class RemoteSource:
    """`idle_after` is how long no message must have come for the worker to be idle."""

    def __init__(
        self,
        queues: SqsQueues,
        plan: ChildPlan,
        world: World,
        *,
        blobs: Blobs | None = None,
        app: str = "",
        notice: SpotNotice | None = None,
        idle_after: float = IDLE_AFTER,
        wait: int = names.LONG_POLL,
    ) -> None:
        settings = plan.settings
        self.worker = f"{settings.name or 'remote'}-{Ids(world)()}"
        self.output = _NoOutput()
        self.contents = _NoContents()
        self._queues = queues
        self._world = world
        self._known = plan.program.known()
        self._lease_for = settings.lease_for
        self._visibility = max(1, math.ceil(settings.lease_for.total_seconds()))
        self._heartbeat = settings.lease_for.total_seconds() / 3
        self._checks = ClaimCheck(blobs)
        self._notice = notice or SpotNotice()
        self._idle_after = idle_after
        self._wakeups = Wakeups()
        self._polls = TaskPolls(
            queues, visibility=self._visibility, on_received=lambda: self._wakeups.wake([_WORK]), wait=wait
        )
        self._control = ControlQueue(queues, self.worker, lambda: self._wakeups.wake([_REQUESTS]), wait=wait)
        self._held: dict[tuple[int, int], Held] = {}
        self._ready: list[Held] = []  # announced, or about to be, and not given to a pool
        self._taken: dict[tuple[int, int], None] = {}  # every fence is run once here, whatever SQS delivers again
        self._taking = asyncio.Lock()
        self._running: RunningWorker | None = None
        queues_of = tuple(dict.fromkeys(settings.queues)) or plan.program.queues()
        record = worker_record.record_of(plan, self.worker, queues_of, self._now(), app=app)
        self._record = msgspec.structs.replace(record, name=settings.name or "remote")
        self._status = names.status_queue(queues.address.prefix)
        self._retry = names.retry_queue(queues.address.prefix)

    def _now(self) -> datetime:
        return moment(self._world.wall())

    # -- the life of a worker ------------------------------------------------------------------------------------------

    def open(self, worker: RunningWorker) -> None:
        self._running = worker

    async def begin(self) -> None:
        """Create the control queue, and say that this worker is here. Repeated by `background` until it succeeds."""
        await self._control.open()
        await self._announce()

    def background(self) -> Sequence[Coroutine[Any, Any, None]]:
        assert self._running is not None
        return [
            self._polls.run(),
            self._control.run(),
            self._announce_forever(),
            self._return_unwanted(),
            self._notice.run(self._running.stop),
        ]

    async def close(self) -> None:
        try:
            await self._give_back(self._polls.take_rest())
            await self._announce(gone=True)
            await self._control.close()
        except StoreError as error:
            _log.warning("could not say that this worker stops: %s", error)

    async def is_idle(self) -> bool:
        is_quiet = time.monotonic() - self._polls.received_at > self._idle_after
        return is_quiet and not self._held and not self._ready

    async def _announce_forever(self) -> None:
        while True:
            await self._world.sleep(self._lease_for)
            try:
                await self._announce()
            except StoreError as error:
                _log.warning("heartbeat of the worker: %s", error)

    async def _announce(self, *, gone: bool = False) -> None:
        worker = self._running
        assert worker is not None
        record = msgspec.structs.replace(
            self._record, running=worker.running, done=worker.done, failed=worker.failed,
            stopping=worker.is_stopping, seen_at=self._now(),
        )  # fmt: skip
        body = wire.WorkerBeat(v=wire.VERSION, record=msgspec.to_builtins(record), gone=gone)
        await self._queues.send(self._status, [wire.written(body)])

    # -- leases --------------------------------------------------------------------------------------------------------

    def limit_of(self, lease: Lease) -> timedelta | None:
        held = self._held.get((lease.seq, lease.fence))
        if held is None or held.task.limit is None:
            return written_limit(lease)
        return timedelta(seconds=held.task.limit)

    async def exchange(self, ended: Sequence[tuple[Lease, Ending]], claim: ClaimRequest | None) -> ExchangeResult:
        settled = await self._report(ended)
        if claim is None or claim.limit < 1:
            return ExchangeResult(settled, [])
        leases, again = await self._claim(claim)
        return ExchangeResult(settled, leases, again=again)

    async def _claim(self, claim: ClaimRequest) -> tuple[list[Lease], bool]:
        """Leases, and whether there may be more at once because some messages were none."""
        received = 0
        async with self._taking:  # two pools claim
            mine = [held for held in self._ready if (held.task.job.task, held.task.job.version) in claim.tasks]
            if len(mine) < claim.limit:
                received = await self._receive(claim.limit - len(mine))
                mine = [held for held in self._ready if (held.task.job.task, held.task.job.version) in claim.tasks]
            taken = mine[: claim.limit]
            if len(self._ready) > len(taken):  # of the other pool
                asyncio.get_running_loop().call_soon(self._wakeups.wake, [_WORK])
            # Durable before the work begins: whoever gets this message later finds that it has begun.
            await self._queues.send(
                self._status,
                [wire.written(wire.Started(v=wire.VERSION, delivery=held.delivery)) for held in taken],
            )
            for held in taken:
                self._ready.remove(held)
                self._held[held.lease.seq, held.lease.fence] = held
            return [held.lease for held in taken], received > len(taken)

    async def _receive(self, most: int) -> int:
        """Receive messages into `_ready`. Returns how many there were, with those that are not run here."""
        refused = []
        messages = await self._polls.take(most)
        for message in messages:
            try:
                held = await self._lease(message)
            except (BadInput, StoreCorrupt) as error:
                refused.append((message, str(error)))
                continue
            if (held.lease.seq, held.lease.fence) in self._taken:
                continue  # a twin of a message that is here: it goes when the job ends, or is gone
            if message.count > 1:
                await self._return(held, "redelivered")
            elif message.age > held.task.valid_for:
                await self._return(held, "late")
            elif (held.task.job.task, held.task.job.version) not in self._known:
                _log.warning("task %s is unknown here: its job is handed back", held.task.job.task)
                await self._send_outcomes([(held, HandedBack(delay=UNKNOWN_TASK_DELAY, unused=True))])
            else:
                self._ready.append(held)
                self._remember(held.lease)
        await set_aside(self._queues, refused)
        return len(messages)

    def _remember(self, lease: Lease) -> None:
        self._taken[lease.seq, lease.fence] = None
        while len(self._taken) > MAX_TAKEN:
            del self._taken[next(iter(self._taken))]

    async def _lease(self, message: Received) -> Held:
        """The lease of a message. The ledger will trust nothing of it but job, fence and nonce."""
        task = wire.read_task(message.body)
        nonce = secrets.token_hex(12)
        meta = {**task.job.meta, DELIVERY_META: nonce}
        args = await self._checks.check_out(task.args)
        created, now = datetime.fromisoformat(task.created_at), self._now()
        lease = Lease(
            seq=task.seq,
            spec=msgspec.structs.replace(task.job, args=args or b"{}", meta=meta),
            fence=task.fence,
            attempt=task.attempt,
            priority=task.priority,
            worker=self.worker,
            until=now + self._lease_for,
            lease_for=self._lease_for,
            started_at=now,
            created_at=created,
            lost=task.lost,
            timeouts=task.timeouts,
            checkpoint=await self._checks.check_out(task.checkpoint),
        )
        delivery = wire.Delivery(
            ledger=task.ledger,
            task_id=task.task_id,
            fence=task.fence,
            nonce=nonce,
            worker_id=self.worker,
            heartbeat=self._heartbeat,
        )
        return Held(message, task, delivery, lease)

    async def _return(self, held: Held, why: Any) -> None:
        body = wire.Returned(v=wire.VERSION, delivery=held.delivery, why=why)
        await self._queues.send(self._status, [wire.written(body)])
        await self._queues.delete([held.message])

    async def _return_unwanted(self) -> None:
        """Hand back what was received for a slot that was taken meanwhile, so that another worker can run it."""
        while True:
            await asyncio.sleep(UNWANTED_AFTER)
            try:
                if time.monotonic() - self._polls.received_at > UNWANTED_AFTER:
                    await self._give_back(self._polls.take_rest())
            except StoreError as error:
                _log.warning("could not hand messages back: %s", error)

    async def _give_back(self, messages: Sequence[Received]) -> None:
        for message in messages:
            try:
                held = await self._lease(message)
            except (BadInput, StoreCorrupt) as error:
                await set_aside(self._queues, [(message, str(error))])
                continue
            await self._send_outcomes([(held, HandedBack(unused=True))])
        async with self._taking:
            ready, self._ready = self._ready, []
        await self._send_outcomes([(held, HandedBack(unused=True)) for held in ready])

    # -- outcomes ------------------------------------------------------------------------------------------------------

    async def _report(self, ended: Sequence[tuple[Lease, Ending]]) -> list[Settled]:
        found = [(self._held.get((lease.seq, lease.fence)), outcome) for lease, outcome in ended]
        held = [(one, outcome) for one, outcome in found if one is not None]
        await self._send_outcomes(held)
        for one, _ in held:
            self._held.pop((one.lease.seq, one.lease.fence), None)
            self._control.forget(one.delivery.nonce)
        # The settlements are for log lines only: the ledger decides.
        return [
            Settled(lease, settle(lease, outcome, chance=0.5, by=self.worker), accepted=True)
            for lease, outcome in ended
            if not isinstance(outcome, Detached)
        ]

    async def _send_outcomes(self, ended: Sequence[tuple[Held, Ending]]) -> None:
        """Tell the ledger, then delete the task messages. Killed in between, a message is delivered again and returned
        to the ledger, which knows the outcome."""
        bodies: dict[str, list[str]] = {}
        for held, outcome in ended:
            queue, body = await self._addressed(held, outcome)
            bodies.setdefault(queue, []).append(body)
        for queue, batch in bodies.items():
            await self._queues.send(queue, batch)
        await self._queues.delete([held.message for held, _ in ended])

    async def _addressed(self, held: Held, outcome: Ending) -> tuple[str, str]:
        try:
            body = await self._outcome_body(held, outcome)
        except TooLarge as error:
            failure = Failure(message=f"its result cannot be sent: {error}", kinds=("TooLarge",), verdict="permanent")
            body = await self._outcome_body(held, Failed(failure))
        is_recoverable = (
            isinstance(outcome, Failed) and classify(outcome.failure, held.lease.spec.options.retry) == "transient"
        )
        return self._retry if is_recoverable else self._status, body

    async def _outcome_body(self, held: Held, outcome: Ending) -> str:
        result = await self._checks.check_in(outcome.result) if isinstance(outcome, Done) else None
        checkpoint = None
        if isinstance(outcome, HandedBack | Suspended):
            checkpoint = await self._checks.check_in(held.checkpoint)
        return wire.written(wire.ended(held.delivery, outcome, result, checkpoint))

    def settled(self, settled: Settled) -> None:
        """Nothing is learned here: the ledger learns."""

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def extend(self, beats: Sequence[Beat]) -> list[Extended]:
        """Tell the ledger that these run, and keep their messages invisible. A message whose visibility cannot be
        extended any more (SQS ends at 12 hours) is left alone: the ledger's lease counts, not the message."""
        found = [(beat, self._held.get((beat.seq, beat.fence))) for beat in beats]
        beating = []
        for beat, held in found:
            if held is not None:
                beating.append(await self._beating(held, beat))
        chunks = [beating[n : n + BEATS_PER_MESSAGE] for n in range(0, len(beating), BEATS_PER_MESSAGE)]
        await self._queues.send(
            self._status, [wire.written(wire.Heartbeat(v=wire.VERSION, beats=tuple(chunk))) for chunk in chunks]
        )
        await self._extend_messages([held for _, held in found if held is not None])
        return [await self._reply(held) for _, held in found]

    async def _reply(self, held: Held | None) -> Extended:
        if held is None:
            return Extended(held=False)
        reply = self._control.reply_for(held.delivery.nonce)
        if not reply.held:
            await self._queues.delete([held.message])
            self._held.pop((held.lease.seq, held.lease.fence), None)
            self._control.forget(held.delivery.nonce)
        return reply

    async def _beating(self, held: Held, beat: Beat) -> wire.Beating:
        checkpoint = None
        if beat.checkpoint is not None:
            checkpoint = await self._checks.check_in(beat.checkpoint)
            held.checkpoint = beat.checkpoint
            held.saved += 1
        return wire.Beating(
            delivery=held.delivery, progress=beat.progress, message=beat.message, alone=beat.alone,
            checkpoint=checkpoint, n=held.saved,
        )  # fmt: skip

    async def _extend_messages(self, held: list[Held]) -> None:
        messages = {one.message.receipt: one for one in held if one.is_extended}
        for refused in await self._queues.extend([one.message for one in messages.values()], self._visibility):
            messages[refused.receipt].is_extended = False

    def watch_work(self) -> Any:
        return self._wakeups.watch([_WORK])

    def watch_requests(self) -> Any:
        return self._wakeups.watch([_REQUESTS])


class _NoOutput:
    """What jobs print stays in the output of their worker: it is not sent to the ledger."""

    def add(self, lease: Lease, data: bytes, skipped: int) -> None: ...


class _NoContents:
    """Without a place of contents that this machine reaches, files cannot be copied."""

    async def download(self, digest: str) -> None:
        raise BadFile(f"the content sha256:{digest} is in the ledger's store: a remote worker needs {_PLACE}")

    async def upload(self, digest: str) -> None:
        raise BadFile(f"the content sha256:{digest} cannot be stored: a remote worker needs {_PLACE}")


_PLACE: Final = "a bucket or folder that it reaches; start the dispatcher with DAYBREAK_FILES=s3://bucket/prefix"

"""Applies the messages of remote workers to the store.

Nothing in a message is trusted but which job, fence and nonce it speaks of, and how the work ended: the lease is made
again from the store, and the policy settles it by the same path as for a local worker. Each message may be applied
repeatedly, late and in any order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.leases import lease_of
from daybreak.core.errors import BadInput, StoreCorrupt
from daybreak.core.model import Ending, HandedBack, Job, Lost, State
from daybreak.core.units import moment
from daybreak.sqs import messages as wire
from daybreak.sqs.claim_check import ClaimCheck
from daybreak.sqs.deliveries import Deliveries
from daybreak.sqs.queues import Received
from daybreak.sqs.remote_workers import RemoteWorkers
from daybreak.store.protocol import Beat, Extended, Store
from daybreak.system.ports import World
from daybreak.worker.supervisor.lease_source import LocalSource, Settled

_log = logging.getLogger("daybreak.sqs")

MAX_BY: Final = 200  # characters of the name of a worker
DEAD_AFTER: Final = 2 / 3  # of `alive_for` without a heartbeat: then a redelivery means that the worker died


class Applied(Struct):
    """What became of some messages: `done` are applied, `refused` must be set aside, each with its reason. `requests`
    must be sent to workers. `begun` and `ended` are job and fence of leases that left the task queues."""

    done: list[Received] = []
    refused: list[tuple[Received, str]] = []
    requests: list[tuple[str, wire.Request]] = []
    begun: list[tuple[str, int]] = []
    ended: list[tuple[str, int]] = []
    settled: list[Settled] = []


class Refused(Exception):
    """A message that cannot be applied, with the reason."""


class Ledger:
    """`ledger` is the name of this store: messages for another one are foreign."""

    def __init__(
        self,
        store: Store,
        source: LocalSource,
        world: World,
        *,
        ledger: str,
        checks: ClaimCheck,
        deliveries: Deliveries,
        workers: RemoteWorkers,
        on_settled: Callable[[Settled], None],
    ) -> None:
        self._store = store
        self._source = source
        self._world = world
        self._ledger = ledger
        self._checks = checks
        self._deliveries = deliveries
        self._workers = workers
        self._on_settled = on_settled
        self._saved: dict[str, int] = {}  # the number of the latest checkpoint, by nonce

    async def apply(self, received: Sequence[Received]) -> Applied:
        """Apply messages. Raises StoreError if the store is away: then all of them may be applied again."""
        return await _apply_each(received, self._apply)

    async def apply_dead(self, received: Sequence[Received]) -> Applied:
        """Take back what SQS set aside as dead letters of the task queues. Each worker that received such a message
        died, or was too slow, before it said `returned`, so nobody else will."""
        return await _apply_each(received, self._apply_dead)

    async def _apply_dead(self, body: str, applied: Applied) -> None:
        await self._take_back(wire.read_task(body), applied, by=self._source.worker)

    async def _apply(self, body: str, applied: Applied) -> None:
        match message := wire.read_from_worker(body):
            case wire.WorkerBeat(record=record, gone=gone):
                worker = self._workers.check(record)
                await (self._workers.gone(worker) if gone else self._workers.seen(worker))
            case wire.Started(delivery=delivery):
                await self._beat([wire.Beating(delivery=delivery)], applied)
            case wire.Heartbeat(beats=beats):
                await self._beat(beats, applied)
            case wire.Returned(delivery=delivery):
                await self._take_back(delivery, applied, by=delivery.worker_id)
            case wire.Ended():
                await self._end(message, applied)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def _job(self, delivery: wire.Delivery | wire.TaskMessage) -> Job:
        """The job of a delivery. Raises Refused if the message is not for this ledger."""
        if delivery.ledger != self._ledger:
            raise Refused(f"it is for the ledger {delivery.ledger!r:.60}, and this is {self._ledger!r}")
        job = (await self._store.get([delivery.task_id]))[0]
        if job is None:
            raise Refused(f"this ledger has no job {delivery.task_id!r:.60}; it may have been removed")
        return job

    def _is_current(self, job: Job, delivery: wire.Delivery | wire.TaskMessage) -> bool:
        return (
            job.state is State.RUNNING and job.fence == delivery.fence and job.spec.holder is None and not job.detached
        )

    async def _beat(self, beats: Sequence[wire.Beating], applied: Applied) -> None:
        """Bind deliveries and extend their leases. Those that do not count are told to stop."""
        sent: list[tuple[wire.Delivery, Beat]] = []
        for beating in beats:
            delivery = beating.delivery
            job = await self._job(delivery)
            if not self._is_current(job, delivery) or not await self._deliveries.bind(delivery):
                applied.requests.append(_request(delivery, "drop"))
                continue
            sent.append((delivery, await self._store_beat(job, beating)))
        replies = await self._source.extend([beat for _, beat in sent])
        for (delivery, beat), reply in zip(sent, replies, strict=True):
            applied.begun.append((delivery.task_id, beat.fence))
            if what := _what(reply):
                applied.requests.append(_request(delivery, what))

    async def _store_beat(self, job: Job, beating: wire.Beating) -> Beat:
        delivery = beating.delivery
        checkpoint = None
        if beating.checkpoint is not None and beating.n > self._saved.get(delivery.nonce, 0):
            checkpoint = await self._checks.check_out(beating.checkpoint)
            self._saved[delivery.nonce] = beating.n
        return Beat(
            seq=job.seq, fence=job.fence, job=job.id, lease_for=self._deliveries.alive_for(delivery), begun=True,
            progress=_fraction(beating.progress), message=beating.message[:1000], alone=beating.alone,
            checkpoint=checkpoint,
        )  # fmt: skip

    async def _take_back(self, delivery: wire.Delivery | wire.TaskMessage, applied: Applied, *, by: str) -> None:
        """A task message came a second time, too often, or too late. If nobody has begun the job, it goes back
        uncharged. If its worker is silent, the attempt is lost: charged, and the next lease has the next fence. While
        heartbeats come, the redelivery says only that SQS could not wait."""
        job = await self._job(delivery)
        if not self._is_current(job, delivery):
            return
        known = await self._deliveries.of(job.id, job.fence)
        if known is None:
            await self._settle(job, HandedBack(unused=True), applied, by=by)
            return
        age = known.heartbeat_age(job, moment(self._world.wall()))
        if age >= known.alive_for * DEAD_AFTER:
            detail = f"its worker {known.worker} sent no heartbeat for {age.total_seconds():.1f} s"
            await self._settle(job, Lost(detail), applied, by=by)

    async def _end(self, message: wire.Ended, applied: Applied) -> None:
        delivery = message.delivery
        job = await self._job(delivery)
        if not self._is_current(job, delivery):
            raise Refused(
                f"it is late, or came twice: job {job.id} is {job.state} with fence {job.fence}, and the message has "
                f"fence {delivery.fence}"
            )
        if not await self._deliveries.bind(delivery):
            raise Refused(f"another delivery of job {job.id} with fence {job.fence} counts")
        result = await self._checks.check_out(message.result)
        outcome = wire.outcome_of(message, result, await self._checks.check_out(message.checkpoint))
        await self._settle(job, outcome, applied, by=delivery.worker_id)

    async def _settle(self, job: Job, outcome: Ending, applied: Applied, *, by: str) -> None:
        """Settle by the policy, as a local worker does; then delete the delivery's record."""
        lease = replace(lease_of(job), checkpoint=job.checkpoint)
        reply = await self._source.exchange([(lease, outcome)], None, by=by[:MAX_BY])
        for settled in reply.settled:
            self._on_settled(settled)
            applied.settled.append(settled)
        applied.ended.append((job.id, job.fence))
        self._forget_saved()
        await self._deliveries.forget([job.id])

    def _forget_saved(self) -> None:
        while len(self._saved) > 10_000:
            del self._saved[next(iter(self._saved))]


async def _apply_each(
    received: Sequence[Received], apply: Callable[[str, Applied], Coroutine[Any, Any, None]]
) -> Applied:
    applied = Applied([], [], [], [], [], [])
    for message in received:
        try:
            await apply(message.body, applied)
            applied.done.append(message)
        except (BadInput, StoreCorrupt, Refused) as error:
            applied.refused.append((message, str(error)))
    return applied


def _what(reply: Extended) -> str | None:
    if not reply.held:
        return "drop"
    for what in ("cancel", "suspend", "preempt"):
        if getattr(reply, what):
            return what
    return None


def _request(delivery: wire.Delivery, what: str) -> tuple[str, wire.Request]:
    request = wire.Request(
        v=wire.VERSION,
        task_id=delivery.task_id,
        fence=delivery.fence,
        nonce=delivery.nonce,
        what=what,  # type: ignore[arg-type]
    )
    return delivery.worker_id, request


def _fraction(progress: float | None) -> float | None:
    return None if progress is None else min(max(progress, 0.0), 1.0)

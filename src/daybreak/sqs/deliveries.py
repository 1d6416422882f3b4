"""The records of which delivery of a job counts: one for each job that a remote worker runs.

SQS may deliver a task message twice. The first delivery that the ledger hears of counts, for this fence: decided by
compare-and-set, so several dispatchers agree. A record is deleted with the outcome of its job, and those that a kill
leaves behind by `sweep`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Job, Put, State
from daybreak.core.units import moment
from daybreak.sqs.messages import Delivery
from daybreak.store.protocol import Store
from daybreak.system.ports import World

_log = logging.getLogger("daybreak.sqs")

KIND: Final = "delivery"
DISPATCHER: Final = "dispatch"  # the name of every dispatcher
MIN_ALIVE: Final = timedelta(milliseconds=500)
MAX_ALIVE: Final = timedelta(hours=1)
_CHUNK: Final = 200


class DeliveryRecord(Struct, frozen=True, kw_only=True):
    """The delivery that counts. Without a heartbeat for `alive_for` its worker counts as dead."""

    fence: int
    nonce: str
    worker: str
    alive_for: timedelta
    started_at: datetime

    def heartbeat_age(self, job: Job, now: datetime) -> timedelta:
        """How long ago the last heartbeat came. Each one sets the lease to `alive_for` from then on."""
        if job.leased_until is None:
            return timedelta()
        return max(now - (job.leased_until - self.alive_for), timedelta())


class Deliveries:
    """The records of one store. `missed` is how many heartbeats a worker may miss."""

    def __init__(self, store: Store, world: World, *, missed: int = 3) -> None:
        self._store = store
        self._world = world
        self._missed = missed
        self._known: dict[str, DeliveryRecord] = {}

    def alive_for(self, delivery: Delivery) -> timedelta:
        return min(max(timedelta(seconds=delivery.heartbeat) * self._missed, MIN_ALIVE), MAX_ALIVE)

    async def bind(self, delivery: Delivery) -> bool:
        """Whether this delivery counts. The first one of a fence does, from now on."""
        job = delivery.task_id
        known = self._known.get(job)
        while known is None or known.fence != delivery.fence:
            found = await self._store.records(KIND, job)
            stored = _read(found[0].value) if found else None
            if stored is not None and stored.fence >= delivery.fence:
                self._known[job] = known = stored
                break
            fresh = DeliveryRecord(
                fence=delivery.fence,
                nonce=delivery.nonce,
                worker=delivery.worker_id,
                alive_for=self.alive_for(delivery),
                started_at=moment(self._world.wall()),
            )
            put = Put(kind=KIND, name=job, value=msgspec.json.encode(fresh), expect=found[0].revision if found else 0)
            if (await self._store.put([put]))[0] is not None:
                self._known[job] = known = fresh
        return known.fence == delivery.fence and known.nonce == delivery.nonce

    async def of(self, job: str, fence: int) -> DeliveryRecord | None:
        """The delivery of this job and fence that counts; None if none has begun."""
        known = self._known.get(job)
        if known is None or known.fence != fence:
            known = await read_delivery(self._store, job)
        return known if known is not None and known.fence == fence else None

    async def forget(self, jobs: list[str]) -> None:
        for job in jobs:
            self._known.pop(job, None)
        if jobs:
            await self._store.put([Put(kind=KIND, name=job, value=None) for job in jobs])

    async def sweep(self) -> int:
        """Delete the records of jobs that no longer run under their fence. Returns how many."""
        found = await self._store.records(KIND)
        old = []
        for n in range(0, len(found), _CHUNK):
            chunk = found[n : n + _CHUNK]
            for record, job in zip(chunk, await self._store.get([one.name for one in chunk]), strict=True):
                if job is None or job.state is not State.RUNNING or job.fence != _read(record.value).fence:
                    old.append(Put(kind=KIND, name=record.name, value=None, expect=record.revision))
                    self._known.pop(record.name, None)
        if old:
            await self._store.put(old)
        return len(old)


async def read_delivery(store: Store, job: str) -> DeliveryRecord | None:
    """The delivery record of a job; None if there is none."""
    found = await store.records(KIND, job)
    return _read(found[0].value) if found else None


async def delivery_of(store: Store, job: Job) -> DeliveryRecord | None:
    """The delivery that runs this job now; None if it does not run, or no remote worker has begun it."""
    if job.state is not State.RUNNING or job.spec.holder is not None or job.detached:
        return None
    found = await read_delivery(store, job.id)
    return found if found is not None and found.fence == job.fence else None


async def deliveries_of(store: Store, jobs: Sequence[Job]) -> list[DeliveryRecord | None]:
    """The delivery that runs each of these jobs now. One read of the store at most, and none if no dispatcher sent
    them."""
    sent = [job for job in jobs if job.state is State.RUNNING and not job.detached and is_dispatcher(job.worker)]
    if len(sent) <= 1:
        found = {job.id: await read_delivery(store, job.id) for job in sent}
    else:
        found = {record.name: _read(record.value) for record in await store.records(KIND)}
    current = {job.id: found[job.id] for job in sent if job.id in found}
    known = [(job, current.get(job.id)) for job in jobs]
    return [one if one is not None and one.fence == job.fence else None for job, one in known]


def is_dispatcher(worker: str | None) -> bool:
    """Whether this is the id of a dispatcher, which claims jobs for remote workers."""
    return worker is not None and worker.startswith(f"{DISPATCHER}-")


def _read(value: bytes) -> DeliveryRecord:
    return msgspec.json.decode(value, type=DeliveryRecord)

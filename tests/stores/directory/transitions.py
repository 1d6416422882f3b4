"""Every transition of a job as one operation on a store, each with what it needs from those before it; and everything
that a store shows, to compare one store with another."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from daybreak.core.model import Done, Need, Put, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Amend, Beat, Claim, Exchange, Filter, Purge, Query, Reap
from daybreak.testing.contract.builders import FATAL, HOUR, LEASE, MINUTE, NOON, OOPS, SECOND, TWICE, spec

TASKS = frozenset({("work", 1)})


def _put():
    return [
        Put(kind="queue", name="default", value=b'{"capacity": 100}'),
        Put(kind="resource", name="plecs", value=b'{"slots": 1}'),
    ]


def _specs():
    return [
        spec(id="plain", args=b'{"n":1}'),
        spec(id="keyed", key="k", unique="u", priority=2),
        spec(id="later", delay=HOUR),
        spec(id="twice", retry=TWICE, resources=(Need("plecs"),)),
        spec(id="third", resources=(Need("plecs"),)),
        spec(id="../out", priority=9),
        spec("item", id="report", queue="reports", args=b'{"data":{"serial":"A1"}}'),
        spec("item", id="bare", queue="reports", args=b"[1]"),
    ]


def settle(lease, outcome):
    return settlement_of(lease, outcome, chance=0.5, by="w")


class Story:
    """The operations in order. Each is called with a store, and may be called on several stores in the same state."""

    def __init__(self) -> None:
        self.leases = {}
        self.now = NOON

    def steps(self):
        return [getattr(self, name) for name in _ORDER]

    async def put(self, store):
        await store.put(_put(), now=NOON)

    async def insert(self, store):
        await store.insert(_specs(), now=NOON)

    async def claim(self, store):
        claim = Claim(worker="w", tasks=TASKS, limit=4, lease_for=LEASE, call="c")
        found = await store.exchange(Exchange(claim=claim), now=NOON)
        self.leases.update({lease.job: lease for lease in found.leases})

    async def claim_items(self, store):
        claim = Claim(worker="w", queues=("reports",), limit=2, lease_for=HOUR * 24 * 30)
        await store.exchange(Exchange(claim=claim), now=NOON)

    async def beat(self, store):
        held = self.leases["keyed"]
        await store.extend([Beat(seq=held.seq, fence=held.fence, lease_for=LEASE)], now=NOON + SECOND)

    async def checkpoint(self, store):
        held = self.leases["keyed"]
        beat = Beat(seq=held.seq, fence=held.fence, lease_for=LEASE, checkpoint=b"half", progress=0.5, alone=True)
        await store.extend([beat], now=NOON + SECOND)

    async def complete(self, store):
        await store.exchange(Exchange(settle=[settle(self.leases["keyed"], Done(b"1"))]), now=NOON + SECOND)

    async def retry_later(self, store):
        await store.exchange(Exchange(settle=[settle(self.leases["twice"], OOPS)]), now=NOON + SECOND)

    async def fail(self, store):
        await store.exchange(Exchange(settle=[settle(self.leases["plain"], FATAL)]), now=NOON + SECOND)

    async def advance(self, store):
        await store.advance(now=NOON + MINUTE)

    async def claim_again(self, store):
        claim = Claim(worker="w", tasks=TASKS, limit=1, lease_for=LEASE)
        await store.exchange(Exchange(claim=claim), now=NOON + MINUTE)

    async def reap(self, store):
        await store.reap(Reap(worker="r", watched_for=HOUR), now=NOON + 2 * MINUTE)

    async def suspend(self, store):
        await self._amend(store, "suspend", "later")

    async def resume(self, store):
        await self._amend(store, "resume", "later")

    async def rerank(self, store):
        await self._amend(store, "rerank", "later", priority=1)

    async def start(self, store):
        await self._amend(store, "start", "later")

    async def cancel(self, store):
        await self._amend(store, "cancel", "later")

    async def retry(self, store):
        await self._amend(store, "retry", "plain")

    async def remove(self, store):
        await self._amend(store, "remove", "later")

    async def move_in(self, store):
        [packed] = await store.pack(["plain"])
        job = msgspec.structs.replace(packed.job, spec=msgspec.structs.replace(packed.job.spec, id="moved"))
        await store.adopt([msgspec.structs.replace(packed, job=job)], by="mover", now=NOON + 2 * MINUTE)

    async def purge(self, store):
        await store.purge(Purge(events_for=timedelta()), now=NOON + timedelta(days=8))

    async def _amend(self, store, action, job, **fields):
        await store.amend(Amend(action=action, by="ann", jobs=(job,), **fields), now=NOON + 2 * MINUTE)


_ORDER = (
    "put", "insert", "claim", "claim_items", "beat", "checkpoint", "complete", "retry_later", "fail", "advance",
    "claim_again", "reap", "suspend", "resume", "rerank", "start", "cancel", "retry", "remove", "move_in", "purge",
)  # fmt: skip


async def shown(store):
    """Everything that a store shows."""
    jobs = (await store.find(Query(limit=1000))).jobs
    return {
        "jobs": {job.id: job for job in jobs},
        "histories": {job.id: await store.history(job.id) for job in jobs},
        "order": [job.id for job in (await store.find(Query(filter=Filter(states=frozenset({State.QUEUED}))))).jobs],
        "counts": await store.count(),
        "totals": await store.totals(),
        "usage": await store.usage(),
        "records": [await store.records(kind) for kind in ("queue", "resource")],
        "keys": await store.known_keys(["k"], now=NOON),
        "events": await store.events(limit=10_000),
    }

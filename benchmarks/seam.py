"""Claim and settle through the store protocol, as a worker does, but without a worker."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.watch import Timed, warm_up
from daybreak import Client, Lease, State, values
from daybreak.core.model import Done, Settlement
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Store

FILLED_AT_ONCE = 50_000


@asynccontextmanager
async def opened(kind: str, place: Path) -> AsyncIterator[Store]:
    """A store with its default settings."""
    if kind == "memory":
        from daybreak.stores.memory import MemoryStore

        async with MemoryStore() as store:
            yield store
    else:
        from daybreak.stores.sqlite import SqliteStore

        async with SqliteStore(place / "daybreak.db") as store:
            yield store


async def exchange(kind: str, place: Path, jobs: int, batch: int, backlog: int) -> Timed:
    """Settle the last batch and claim the next in one transaction, over a backlog kept between half and full.

    Between two exchanges each job is decoded, called, and its result encoded, as peers do in their drain. Only
    refilling is left out of the time.
    """
    timed = Timed()
    async with opened(kind, place) as store:
        client = Client(store)
        await _fill(client, backlog)
        drain = _Drain(store, batch)
        waiting = await _turns(client, drain, warm_up(jobs), backlog, backlog, Timed())
        before = drain.settled
        await _turns(client, drain, jobs, waiting, backlog, timed)
        timed.jobs = drain.settled - before
        await drain.turn(claim=False)
        await _expect(client, State.COMPLETED, drain.settled)
        assert len(drain.seen) == drain.settled, "a job was handed out twice"
        timed.facts["durable"] = store.traits.durable
    return timed


async def _turns(client: Client, drain: _Drain, jobs: int, waiting: int, backlog: int, timed: Timed) -> int:
    end = drain.settled + jobs
    while drain.settled < end:
        if waiting < max(drain.batch, backlog // 2):
            await _fill(client, backlog - waiting)
            waiting = backlog
        with timed.timing():
            leases = await drain.turn()
        drain.seen.update(lease.seq for lease in leases)
        waiting -= len(leases)
    return waiting


async def _fill(client: Client, jobs: int) -> None:
    for start in range(0, jobs, FILLED_AT_ONCE):
        end = min(jobs, start + FILLED_AT_ONCE)
        await client.submit_many([client.spec("noop", {"n": n}) for n in range(start, end)])


class _Drain:
    def __init__(self, store: Store, batch: int) -> None:
        self.batch = batch
        self.settled = 0
        self.seen: set[int] = set()
        self._store = store
        self._claim = Claim(worker="bench", limit=batch, lease_for=timedelta(seconds=60))
        self._ended: list[Settlement] = []

    async def turn(self, *, claim: bool = True) -> list[Lease]:
        answer = await self._store.exchange(Exchange(settle=self._ended, claim=self._claim if claim else None))
        assert all(answer.settled), "a settlement was refused"
        assert len(answer.leases) == (self.batch if claim else 0)
        self.settled += len(answer.settled)
        self._ended = [_run(lease) for lease in answer.leases]
        return answer.leases


def _run(lease: Lease) -> Settlement:
    result = values.encode(noop(**values.decode(lease.spec.args)))
    return settle(lease, Done(result), chance=random.random(), by=lease.worker)


def noop(n: int) -> int:
    return n


async def _expect(client: Client, state: State, jobs: int) -> None:
    found = (await client.count())[state]
    assert found == jobs, f"{found} jobs {state} where {jobs} were expected"

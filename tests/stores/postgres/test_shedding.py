"""A full queue that sheds, while others claim what would be shed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta

import pytest

from daybreak.client.leases import lease_of
from daybreak.core.events import FOLD_FROM
from daybreak.core.model import Done, State
from daybreak.core.wait_limit import SHORTENED_NOTE
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.postgres import PostgresStore
from daybreak.stores.postgres.connection import Connection
from daybreak.testing.contract.builders import (
    NOON,
    amend,
    assert_sound,
    configure,
    counted,
    jobs_of,
    needs,
    provide,
    spec,
)

LEASE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("resources", "slots"), [((), 1), (needs("plecs"), None), (needs("plecs"), 1)], ids=["plain", "shared", "scarce"]
)
async def test_it_keeps_its_capacity_and_each_job_ends_in_one_way(url, resources, slots):
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresStore(url, connections=1)) for _ in range(4)]
        await configure(stores[0], capacity=4, when_full="shed")
        await provide(stores[0], "plecs", slots=slots)
        accepted, evicted, done = [], [], []

        async def submit(number, store):
            for n in range(40):
                job = spec(priority=(3 * n + number) % 10, resources=resources)
                [answer] = await store.insert([job])
                if answer.verdict == "new":
                    accepted.append(job.id)
                    evicted.extend([answer.evicted] if answer.evicted else [])

        async def work(number, store):
            for _ in range(20):
                claim = Claim(worker=f"w{number}", limit=1, lease_for=LEASE)
                leases = (await store.exchange(Exchange(claim=claim))).leases
                settlements = [settle(lease, Done(), chance=0.5, by="w") for lease in leases]
                assert all((await store.exchange(Exchange(settle=settlements))).settled)
                done.extend(lease.job for lease in leases)

        await asyncio.gather(submit(0, stores[0]), submit(1, stores[1]), work(0, stores[2]), work(1, stores[3]))
        states = Counter()
        for tally in await stores[0].count():
            states[tally.state] += tally.n
        assert states["queued"] + states["blocked"] <= 4
        assert evicted
        assert len(evicted) == len(set(evicted)) == states["failed"]
        assert len(done) == len(set(done)) == states["completed"]
        assert len(accepted) == sum(states.values())
        totals = await counted(stores[0])
        assert totals["submitted"] == (len(accepted), 0)
        assert totals["failed shed"] == (len(evicted), 0)
        await assert_sound(stores[0])


async def test_waiters_of_locks_are_shed_while_holders_release(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresStore(url, connections=1)) for _ in range(4)]
        await configure(stores[0], "lock", capacity=5, when_full="shed")
        for name in ("a", "b"):
            await provide(stores[0], name, slots=1, max_waiting=3)
        accepted, evicted, released = [], [], []

        async def ask(number, store):
            for n in range(40):
                locks = (("a",), ("b",), ("a", "b"))[(n + number) % 3]
                job = spec("lock", queue="lock", priority=(7 * n + number) % 10, resources=needs(*locks), holder="ann")
                [answer] = await store.insert([job])
                if answer.verdict == "new":
                    accepted.append(job.id)
                    evicted.extend([answer.evicted] if answer.evicted else [])

        async def release(store):
            for _ in range(40):
                for held in await jobs_of(store, states=frozenset({State.RUNNING})):
                    lease = lease_of(held)
                    if (await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="ann")]))).settled[
                        0
                    ]:
                        released.append(held.id)

        await asyncio.gather(ask(0, stores[0]), ask(1, stores[1]), ask(2, stores[2]), release(stores[3]))
        states = Counter()
        for tally in await stores[0].count():
            states[tally.state] += tally.n
        assert states["running"] + states["blocked"] <= 5
        assert evicted
        assert len(evicted) == len(set(evicted)) == states["failed"]
        assert len(set(released)) == states["completed"]
        assert len(accepted) == sum(states.values())
        await assert_sound(stores[0])


async def test_many_jobs_refused_together_search_for_a_victim_once(store, monkeypatch):
    await configure(store, capacity=2, when_full="shed")
    await store.insert([spec(), spec()], now=NOON)
    statements, rows = [], Connection.rows
    monkeypatch.setattr(
        Connection, "rows", lambda connection, *args: statements.append(args[0]) or rows(connection, *args)
    )
    answers = await store.insert([spec() for _ in range(50)], now=NOON)
    assert {answer.verdict for answer in answers} == {"full"}
    assert statements.count(store._opened._sql.last_in_lanes) == 1


async def test_a_shorter_wait_limit_is_told_however_long_the_story_grows(store):
    await configure(store, capacity=10)
    job = spec(priority=9, expires_in=LEASE)
    await store.insert([*(spec() for _ in range(9)), job], now=NOON)
    [first] = await store.history(job.id)
    assert first.note == SHORTENED_NOTE
    for n in range(FOLD_FROM):
        await amend(store, "rerank", job.id, priority=7 + n % 2)
    events = await store.history(job.id)
    assert (events[0], events[1].kind) == (first, "folded")

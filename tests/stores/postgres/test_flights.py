"""Flights on many connections at once: one leader, no deadlock, nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from datetime import timedelta

import psycopg
from msgspec.structs import replace
from postgres_servers import URL

from daybreak.core.errors import StoreUnavailable
from daybreak.core.flights import FIRST_TO_DROP
from daybreak.core.model import Done, Failed, Failure, HandedBack, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import CacheQuery, Claim, Exchange, Filter, Purge, Query, Uncache, Verdict
from daybreak.stores.postgres import PostgresStore, faults
from daybreak.stores.postgres.name_tables import LOCK_CLASSES
from daybreak.stores.postgres.transaction import PostgresTransaction
from daybreak.testing.contract.builders import amend, find_all, get_job, needs, provide
from daybreak.testing.contract.flights import assert_flights_are_sound, flying

LEASE = timedelta(minutes=1)


async def open_stores(count: int, url: str, exit_: contextlib.AsyncExitStack) -> list[PostgresStore]:
    return [await exit_.enter_async_context(PostgresStore(url, connections=1)) for _ in range(count)]


async def test_of_a_thousand_at_once_one_leads(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(4, url, stack)

        async def submit(store, sizes):
            answers = []
            for size in sizes:
                answers += await store.insert([flying() for _ in range(size)])
            return answers

        parts = [[250], [50] * 5, [10] * 25, [1] * 50 + [100, 100]]
        found = await asyncio.gather(*(submit(store, sizes) for store, sizes in zip(stores, parts, strict=True)))
        verdicts = Counter(answer.verdict for answers in found for answer in answers)
        assert verdicts == {Verdict.NEW: 1, Verdict.FOLLOWS: 999}
        [lease] = (await stores[0].exchange(Exchange(claim=Claim(worker="w", limit=9, lease_for=LEASE)))).leases
        await stores[1].exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
        while (await stores[2].advance(500)).again:
            pass
        counted = await stores[3].count(Filter())
        assert [(tally.state, tally.n) for tally in counted] == [(State.COMPLETED, 1000)]


async def test_nobody_is_left_behind_whatever_five_do_at_once(url):
    """A job that expires or is shed may be locked out of order: then PostgreSQL ends one of two transactions, and the
    store repeats it. No caller sees an error."""
    async with contextlib.AsyncExitStack() as stack:
        *stores, watcher = await open_stores(5, url, stack)
        await provide(watcher, "plecs", now=None, slots=3)
        fails = Failed(Failure(message="no", kinds=("ValueError",)))

        async def live(number, store):
            chance, mine, held = random.Random(number), [], []
            for turn in range(40):
                flights = [f"f{chance.randrange(6)}" for _ in range(chance.randrange(5))]
                jobs = [
                    flying(
                        flight, priority=chance.choice([2, 5, 5]), queue=chance.choice(["a", "a", "b"]),
                        expires_in=chance.choice([None, None, timedelta(milliseconds=20)]),
                        resources=chance.choice([(), needs("plecs")]), size=100,
                    )
                    for flight in flights
                ]  # fmt: skip
                await store.insert(jobs)
                mine += [job.id for job in jobs]
                fates = [chance.choice([Done(b"1" * 30), fails, HandedBack()]) for _ in held]
                ended = [settle(one, fate, chance=0.5, by="w") for one, fate in zip(held, fates, strict=True)]
                claim = Claim(worker=f"w{number}", queues=("a", "b"), limit=chance.choice([1, 3]), lease_for=LEASE)
                held = (await store.exchange(Exchange(settle=ended, claim=claim))).leases
                if mine and turn % 2:
                    action = chance.choice(["cancel", "suspend", "resume", "retry", "rerank", "remove"])
                    await amend(store, action, *chance.sample(mine, min(3, len(mine))), now=None)
                if turn % 8 == 7:
                    await store.uncache(Uncache(limit=3))
                    await store.purge(Purge())
                    await store.advance(50)
            await store.exchange(Exchange(settle=[settle(one, Done(b"2"), chance=0.5, by="w") for one in held]))

        await asyncio.gather(*(live(number, store) for number, store in enumerate(stores)))
        suspended = await find_all(watcher, states=frozenset({State.SUSPENDED}))
        await amend(watcher, "resume", *suspended, now=None)
        for _ in range(500):
            claim = Claim(worker="w", queues=("a", "b"), limit=9, lease_for=LEASE)
            leases = (await watcher.exchange(Exchange(claim=claim))).leases
            ended = [settle(one, Done(b"3"), chance=0.5, by="w") for one in leases]
            await watcher.exchange(Exchange(settle=ended))
            if not leases and not (await watcher.advance(500)).again:
                break
        await assert_flights_are_sound(watcher)
        unfinished = frozenset({State.QUEUED, State.BLOCKED, State.SCHEDULED, State.RUNNING})
        assert (await watcher.find(Query(filter=Filter(states=unfinished)))).jobs == []


async def test_a_job_of_an_outbox_decides_when_it_is_accepted(url):
    async with PostgresStore(url) as store:
        [first] = await store.insert([flying()])
        [lease] = (await store.exchange(Exchange(claim=Claim(worker="w", lease_for=LEASE)))).leases
        hit, other, follower = flying(), flying("g"), flying("g")
        with psycopg.connect(URL) as db:
            store.insert_within(db, [hit, other, follower])
            await store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
        [lease] = (await store.exchange(Exchange(claim=Claim(worker="w", limit=5, lease_for=LEASE)))).leases
        assert lease.job == other.id
        assert (await get_job(store, hit.id)).cached_from == first.job
        assert await find_all(store, states=frozenset({State.BLOCKED})) == [follower.id]
        assert [entry.hits for entry in (await store.cached(CacheQuery())).entries] == [1]


async def test_a_retry_that_waits_for_its_unique_name_holds_no_flight(url):
    """An insert locks unique names before flights: the other way round, the two would wait for each other."""
    async with PostgresStore(url) as store:
        ended = flying(unique="one")
        await store.insert([ended])
        assert await amend(store, "cancel", ended.id, now=None) == ["done"]
        with psycopg.connect(URL) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s, hashtext('one'))", (LOCK_CLASSES["unique"],))
            retried = asyncio.create_task(amend(store, "retry", ended.id, now=None))
            await waits_for_a_name()
            [answer] = await asyncio.wait_for(store.insert([flying()]), 20)
            assert answer.verdict is Verdict.NEW
        assert await retried == ["done"]
        assert (await get_job(store, ended.id)).state is State.BLOCKED


async def test_an_exchange_locks_names_first_and_then_all_flights_at_once(url, monkeypatch):
    """Flights that are locked one after the other, or before names, could be a deadlock with an insert."""
    locked = []
    real = PostgresTransaction.lock_names

    def spy(tx, kind, names):
        names = list(names)
        locked.append((kind, sorted(names)))
        real(tx, kind, names)

    async with PostgresStore(url) as store:
        await store.insert([flying("f")])
        [lease] = (await store.exchange(Exchange(claim=Claim(worker="w", lease_for=LEASE)))).leases
        ended = replace(settle(lease, Done(b"1"), chance=0.5, by="w"), inserts=(flying("g", key="k", unique="u"),))
        monkeypatch.setattr(PostgresTransaction, "lock_names", spy)
        await store.exchange(Exchange(settle=[ended], insert=[flying("h", key="l")]))
        assert locked[:3] == [("key", ["k", "l"]), ("unique", ["u"]), ("flight", ["f", "g", "h"])]
        assert "flight" not in [kind for kind, _ in locked[3:]]


async def waits_for_a_name():
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND NOT granted"
    with psycopg.connect(URL, autocommit=True) as db:
        while db.execute(waiting, (LOCK_CLASSES["unique"],)).fetchone() == (0,):  # noqa: ASYNC110 - it happens on the server
            await asyncio.sleep(0.01)


async def test_one_result_that_makes_room_locks_few_others(url, monkeypatch):
    """All that are read are locked, and nobody can submit a job of these flights meanwhile."""
    locked = []
    real = PostgresTransaction.lock_free_flights

    def spy(tx, flights):
        locked.append(len(flights))
        return real(tx, flights)

    async def compute(store):
        while leases := (await store.exchange(Exchange(claim=Claim(worker="w", lease_for=LEASE)))).leases:
            await store.exchange(Exchange(settle=[settle(leases[0], Done(b"1"), chance=0.5, by="w")]))

    async with PostgresStore(url) as store:
        room = 2 * FIRST_TO_DROP
        await store.insert([flying(f"f{number}", size=room) for number in range(room)])
        await compute(store)
        monkeypatch.setattr(PostgresTransaction, "lock_free_flights", spy)
        await store.insert([flying("one more", size=room)])
        await compute(store)
        assert locked == [FIRST_TO_DROP]


def test_a_server_without_room_for_locks_is_asked_again():
    """Many who submit much at once may need more locks than the server has: the next attempt finds them free."""
    full = psycopg.errors.OutOfMemory(
        "out of shared memory\nHINT:  You might need to increase max_locks_per_transaction."
    )
    error = faults.call_error("postgresql://host/db", full, sent=False, lost=False)
    assert isinstance(error, StoreUnavailable)
    assert "max_locks_per_transaction" in str(error)

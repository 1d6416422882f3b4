"""Resources under many connections: slots are never exceeded or lost, and there are no deadlocks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import psycopg
import pytest
from postgres_servers import URL, with_schema

from daybreak.core.model import Done, HandedBack, Outcome, Settlement, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Filter
from daybreak.stores.postgres import PostgresStore, faults
from daybreak.testing.contract.builders import amend, assert_sound, needs, provide, set_gate, spec

LEASE = timedelta(minutes=1)
ALWAYS_DONE = (Done(),)
Work = Callable[[PostgresStore], Awaitable[None]]
OPEN = Filter(states=frozenset({State.QUEUED, State.BLOCKED, State.RUNNING, State.SUSPENDED, State.SCHEDULED}))
# Slots held according to the leases, and according to the gauges, in one snapshot.
RECOUNT = """
SELECT g.name, g.slots, g.used, coalesce(l.held, 0), g.waiting, (SELECT count(*) FROM {0}.held h WHERE h.cause = g.name)
FROM {0}.gauge g LEFT JOIN (
    SELECT n.key AS name, sum(n.value::bigint) AS held
    FROM {0}.lease l, jsonb_each_text(l.needs::jsonb) n GROUP BY n.key
) l USING (name)
"""


@pytest.fixture
def deadlocks(monkeypatch):
    seen = []
    is_retryable = faults.is_retryable

    def noticed(error):
        if isinstance(error, psycopg.errors.DeadlockDetected):
            seen.append(error)
        return is_retryable(error)

    monkeypatch.setattr(faults, "is_retryable", noticed)
    return seen


class Counting:
    """Recounts all the time, beside the workers."""

    def __init__(self, store: PostgresStore) -> None:
        self._recount = RECOUNT.format(store.address.schema)
        self._conninfo = store.address.conninfo
        self._ended = threading.Event()
        self.most: dict[str, int] = {}
        self.wrong: list[object] = []

    def run(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as db:
            while not self._ended.is_set():
                self._look(db)

    def _look(self, db: psycopg.Connection) -> None:
        for row in db.execute(self._recount):
            name, slots, used, held, waiting, blocked = row
            self.most[name] = max(self.most.get(name, 0), held)
            if used != held or waiting != blocked or (slots is not None and held > slots):
                self.wrong.append(row)

    @contextlib.contextmanager
    def at_work(self):
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


async def in_threads(url: str, *works: Work) -> None:
    """Run each in a thread with its own event loop and store, like a process."""

    async def with_store(work):
        async with PostgresStore(url, connections=1) as store:
            await work(store)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, with_store(work)) for work in works))


def worker(
    name: str, limit: int = 2, outcomes: Sequence[Outcome] = ALWAYS_DONE, counting: Counting | None = None
) -> Work:
    """Claim and settle until nothing is left, or a fault was found."""

    async def work(store: PostgresStore) -> None:
        settling, turn = [], 0
        for _ in range(20_000):
            claim = Claim(worker=name, limit=limit, lease_for=LEASE)
            answer = await store.exchange(Exchange(settle=settling, claim=claim))
            assert all(answer.settled)
            settling = []
            for lease in answer.leases:
                turn += 1
                settling.append(settle(lease, outcomes[turn % len(outcomes)], chance=0.5, by=name))
            is_over = not settling and not await store.count(OPEN)
            if is_over or (counting is not None and counting.wrong):
                return
        raise AssertionError("the work does not end")

    return work


async def test_three_slots_are_never_exceeded_by_eight_claimants(url, store, deadlocks):
    await provide(store, "plecs", slots=3)
    await store.insert([spec(resources=needs("plecs")) for _ in range(300)])
    counting = Counting(store)
    with counting.at_work():
        await in_threads(url, *(worker(f"w{n}", counting=counting) for n in range(8)))
    assert counting.wrong == []
    assert counting.most["plecs"] == 3
    assert deadlocks == []
    assert {tally.state for tally in await store.count()} == {State.COMPLETED}
    await assert_sound(store)


async def test_two_resources_are_taken_together_or_not_at_all_under_contention(url, store, deadlocks):
    await provide(store, "a", slots=2)
    await provide(store, "b", slots=3)
    kinds = (needs("a"), needs("b"), needs("a", "b"), needs(b=2), needs("a", b=2), ())
    jobs = [spec(f"t{n % 3}", resources=kinds[n % len(kinds)], priority=n % 4) for n in range(240)]
    await store.insert(jobs)
    counting = Counting(store)
    with counting.at_work():
        outcomes = (Done(), Done(), HandedBack())
        await in_threads(url, *(worker(f"w{n}", 1 + n % 4, outcomes, counting) for n in range(8)))
    assert counting.wrong == []
    assert counting.most == {"a": 2, "b": 3}
    assert deadlocks == []
    await assert_sound(store)


async def test_whatever_people_do_meanwhile_nothing_leaks_and_nothing_deadlocks(url, store, deadlocks):
    await provide(store, "a", slots=2)
    await provide(store, "b", slots=3)
    kinds = (needs("a"), needs("b"), needs("a", "b"), ())
    jobs = [spec(resources=kinds[n % len(kinds)], priority=n % 4) for n in range(200)]
    await store.insert(jobs)
    ids = [job.id for job in jobs]

    async def disturb(store: PostgresStore) -> None:
        chance = random.Random(7)
        for _ in range(25):
            some = chance.sample(ids, 6)
            await amend(store, "suspend", *some, now=None)
            await amend(store, "rerank", *chance.sample(ids, 6), now=None, priority=1)
            await amend(store, "resume", *some, now=None)
            await amend(store, "cancel", *chance.sample(ids, 2), now=None)
            await amend(store, "retry", *chance.sample(ids, 2), now=None)

    async def govern(store: PostgresStore) -> None:
        for n in range(25):
            await provide(store, "a", slots=2 + n % 2, now=None)
            await set_gate(store, "b", now=None, shut_for=timedelta(microseconds=n))
            await set_gate(store, "b", now=None)
            await store.advance()
        await provide(store, "a", slots=2, now=None)

    await in_threads(url, disturb, disturb, govern, *(worker(f"w{n}") for n in range(4)))
    assert deadlocks == []
    await assert_sound(store, ids)


async def test_a_lock_is_held_by_one_at_a_time_under_rising_fences(url, store, deadlocks):
    await provide(store, "lock:a", slots=1)
    fences: list[int] = []

    def holder(name: str) -> Work:
        async def work(store: PostgresStore) -> None:
            for _ in range(10):
                wanted = spec("lock", queue="lock", resources=needs("lock:a"), holder=name, hold_for=LEASE)
                await store.insert([wanted])
                fences.append(await held(store, wanted.id))
                [job] = await store.get([wanted.id])
                [ended] = (await store.exchange(Exchange(settle=[_completed(job)]))).settled
                assert ended

        return work

    counting = Counting(store)
    with counting.at_work():
        await in_threads(url, *(holder(f"h{n}") for n in range(6)))
    assert counting.wrong == []
    assert counting.most == {"lock:a": 1}
    assert fences == sorted(set(fences))
    assert deadlocks == []


async def held(store: PostgresStore, job: str) -> int:
    for _ in range(10_000):
        [found] = await store.get([job])
        if found.state is State.RUNNING:
            return found.fence
    raise AssertionError("the lock is never held")


def _completed(job):
    return Settlement(seq=job.seq, job=job.id, fence=job.fence, state=State.COMPLETED, attempt=job.attempt)


async def test_an_offer_reads_a_few_pages_however_many_wait(fresh_schema):
    # A schema of its own: what other tests deleted would still be in the index.
    async with PostgresStore(with_schema(URL, fresh_schema)) as store:
        await provide(store, "plecs", slots=1)
        await store.insert([spec(resources=needs("plecs")) for _ in range(2)])
        schema, claim = store.address.schema, Claim(worker="w1", limit=5, lease_for=LEASE)
        [lease] = (await store.exchange(Exchange(claim=claim))).leases
        with psycopg.connect(store.address.conninfo, autocommit=True) as db:
            like = f"{schema}.job j, generate_series(1000, 30999) n WHERE j.seq = {lease.seq}"
            db.execute(
                f"INSERT INTO {schema}.job "
                "(seq, created, arrived, ord, lane, band, priority, asked, id, by, args, options) "
                f"SELECT n, 0, 0, 0, lane, band, priority, asked, 'many-' || n, by, args, options FROM {like}"
            )
            db.execute(
                f"INSERT INTO {schema}.held (seq, state, cause, lane, band, ord, attempt, fence, n) "
                f"SELECT n, 'blocked', 'plecs', lane, band, 0, 0, 0, 1 FROM {like}"
            )
            db.execute(f"UPDATE {schema}.gauge SET waiting = waiting + 30000")
            db.execute(f"ANALYZE {schema}.held, {schema}.job")
            offer = store._opened._sql.waiting_in_lanes.replace("%(cause)b", "'plecs'").replace("%(limit)b", "101")
            db.execute("SET enable_seqscan = off")
            [([plan],)] = db.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {offer}").fetchall()
        blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        assert blocks < 60, plan
        done = settle(lease, Done(), chance=0.5, by="w1")
        [following] = (await store.exchange(Exchange(settle=[done], claim=claim))).leases
        assert following.job != lease.job

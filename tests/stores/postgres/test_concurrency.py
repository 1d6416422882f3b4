"""Many connections at once: limits hold, the feed shows every event once, claims never overlap."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta

import psycopg
import pytest

from daybreak.core.events import Event, fold
from daybreak.core.model import Done, Failed, Failure, HandedBack, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Filter, Verdict
from daybreak.stores.postgres import PostgresStore, arrays, faults, plain_path
from daybreak.testing.contract.builders import amend, assert_sound, configure, folded, spec

LEASE = timedelta(minutes=1)


async def open_stores(count: int, url: str, exit_: contextlib.AsyncExitStack) -> list[PostgresStore]:
    return [await exit_.enter_async_context(PostgresStore(url, connections=1)) for _ in range(count)]


async def drain(store, worker, outcomes=(None,), limit=7, **options) -> list[str]:
    """Claim and settle until nothing is left; the jobs, as they were claimed."""
    taken, settling, turn = [], [], 0
    for _ in range(10_000):
        claim = Claim(worker=worker, limit=limit, lease_for=LEASE, **options)
        answer = await store.exchange(Exchange(settle=settling, claim=claim))
        assert all(answer.settled)
        settling = []
        for lease in answer.leases:
            outcome = outcomes[turn % len(outcomes)] or Done(b"1")
            turn += 1
            settling.append(settle(lease, outcome, chance=0.5, by=worker))
            taken.append(lease.job)
        if not answer.leases:
            return taken
    raise AssertionError("the work does not end")


async def test_four_writers_and_a_follower_who_sees_each_event_once_in_order_per_job(url):
    async with contextlib.AsyncExitStack() as stack:
        *writers, follower = await open_stores(5, url, stack)
        busy = True

        async def write(number, store):
            jobs = [spec(queue=f"q{number % 2}", expires_in=timedelta(hours=1)) for _ in range(60)]
            for start in range(0, 60, 5):
                await store.insert(jobs[start : start + 5])
                await amend(store, "rerank", jobs[start].id, now=None, priority=1)
            fails = Failed(Failure(message="no", kinds=("ValueError",)))
            await drain(store, f"w{number}", (None, HandedBack(), None, fails), 5, queues=("q0", "q1"))

        seen: list[Event] = []

        async def follow():
            cursor = None
            while True:
                was_busy = busy
                feed = await follower.events(cursor, 17)
                cursor = feed.cursor
                seen.extend(feed.events)
                if not feed.events and not was_busy:
                    return
                await asyncio.sleep(0)

        following = asyncio.create_task(follow())
        await asyncio.gather(*(write(number, store) for number, store in enumerate(writers)))
        busy = False
        await following
        numbers = Counter((event.job, event.n) for event in seen)
        assert set(numbers.values()) == {1}
        by_job: dict[str, list[Event]] = {}
        for event in seen:
            by_job.setdefault(event.job, []).append(event)
        assert len(by_job) == 240
        for job, events in by_job.items():
            assert events == await follower.history(job)
            [found] = await follower.get([job])
            assert fold(events) == folded(found)
        await assert_sound(follower)


async def test_max_running_is_never_exceeded_by_eight_connections(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(8, url, stack)
        await configure(stores[0], max_running=3)
        await stores[0].insert([spec() for _ in range(150)])
        running: set[str] = set()
        most = 0

        async def work(number, store):
            nonlocal most
            settling = []
            for _ in range(400):
                ended = {settlement.job for settlement in settling}
                claim = Claim(worker=f"w{number}", limit=2, lease_for=LEASE)
                running.difference_update(ended)  # from here on the server may lease other jobs in their place
                answer = await store.exchange(Exchange(settle=settling, claim=claim))
                running.update(lease.job for lease in answer.leases)
                most = max(most, len(running))
                settling = [settle(lease, Done(), chance=0.5, by="w") for lease in answer.leases]
                left = await store.count(Filter(states=frozenset({State.QUEUED, State.RUNNING})))
                assert sum(tally.n for tally in left if tally.state is State.RUNNING) <= 3
                if not settling and not left:
                    return
            raise AssertionError("the work does not end")

        await asyncio.gather(*(work(number, store) for number, store in enumerate(stores)))
        assert most in (2, 3)  # as the answers report it; the recount above is the proof
        await assert_sound(stores[0])


async def test_capacity_holds_under_eight_submitters(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(8, url, stack)
        await configure(stores[0], capacity=20)
        answers = await asyncio.gather(*(store.insert([spec()]) for store in stores for _ in range(6)))
        assert Counter(answer.verdict for [answer] in answers) == {Verdict.NEW: 20, Verdict.FULL: 28}


async def test_one_key_and_one_name_submitted_by_eight_are_one_job(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(8, url, stack)
        for options in ({"key": "k"}, {"unique": "u"}):
            answers = await asyncio.gather(*(store.insert([spec(**options)]) for store in stores for _ in range(4)))
            assert len({answer.job for [answer] in answers}) == 1
            assert [answer.verdict for [answer] in answers].count(Verdict.NEW) == 1
        same = spec()
        answers = await asyncio.gather(*(store.insert([same]) for store in stores))
        assert [answer.verdict for [answer] in answers].count(Verdict.NEW) == 1
        assert len({answer.seq for [answer] in answers}) == 1


async def test_every_job_is_given_to_one_claimant_only(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(4, url, stack)
        for task in ("a", "b", "c"):
            await stores[0].insert([spec(task, priority=n % 3) for n in range(80)])
        known = frozenset({("a", 1), ("b", 1), ("c", 1)})
        taken = await asyncio.gather(*(drain(s, f"w{n}", tasks=known) for n, s in enumerate(stores)))
        jobs = [job for part in taken for job in part]
        assert len(jobs) == len(set(jobs)) == 240
        await assert_sound(stores[0])


async def test_changes_and_claims_at_once_leave_every_job_in_one_state(url):
    async with contextlib.AsyncExitStack() as stack:
        stores = await open_stores(4, url, stack)
        jobs = [spec(retry=spec().options.retry) for _ in range(60)]
        await stores[0].insert(jobs)
        names = [job.id for job in jobs]

        async def disturb(store, action):
            for start in range(0, 60, 6):
                await amend(store, action, *names[start : start + 6], now=None, priority=2)

        await asyncio.gather(
            disturb(stores[0], "suspend"), disturb(stores[1], "resume"), disturb(stores[1], "rerank"),
            drain(stores[2], "w1", (None, HandedBack())), drain(stores[3], "w2"),
            disturb(stores[0], "cancel"), disturb(stores[1], "retry"),
        )  # fmt: skip
        await assert_sound(stores[0], names)


@pytest.fixture
def deadlocks(monkeypatch):
    """The calls that the server aborted as deadlocked; all are retried, a second later."""
    seen = []
    is_retryable = faults.is_retryable

    def noticed(error):
        if isinstance(error, psycopg.errors.DeadlockDetected):
            seen.append(error)
        return is_retryable(error)

    monkeypatch.setattr(faults, "is_retryable", noticed)
    return seen


async def test_a_heartbeat_and_the_settlements_of_the_same_jobs_do_not_block_each_other(store, deadlocks):
    for _ in range(60):
        await store.insert([spec() for _ in range(100)])
        leases = (await store.exchange(Exchange(claim=Claim(worker="w1", limit=100, lease_for=LEASE)))).leases
        ended = [
            settle(lease, Done(b"1"), chance=0, by="w1") for lease in reversed(leases)
        ]  # not in the order of the claim
        beats = [Beat(seq=lease.seq, fence=lease.fence) for lease in leases]
        await asyncio.gather(store.extend(beats), store.exchange(Exchange(settle=ended)))
    assert deadlocks == []


async def test_a_limited_queue_and_unique_names_do_not_block_each_other(url, deadlocks):
    async with contextlib.AsyncExitStack() as exit_:
        one, other = await open_stores(2, url, exit_)
        await configure(one, max_running=2, capacity=100)
        done = asyncio.Event()

        async def submit():
            n = 0
            while not done.is_set():
                n += 1
                await other.insert([spec(unique=f"u{n % 2}")])

        submitting, settling = asyncio.create_task(submit()), []
        for _ in range(120):
            claim = Claim(worker="w1", limit=2, lease_for=LEASE)
            answer = await one.exchange(Exchange(settle=settling, claim=claim))
            settling = [settle(lease, Done(b"1"), chance=0, by="w1") for lease in answer.leases]
        done.set()
        await submitting
        assert deadlocks == []


async def test_a_limit_set_while_a_claim_is_under_way_counts_what_it_takes(store):
    await store.insert([spec() for _ in range(5)])
    with psycopg.connect(store.address.conninfo) as db:
        arrays.register(db.adapters)
        under_way = Exchange(claim=Claim(worker="w1", limit=3, lease_for=LEASE))
        taken = db.execute(store._opened._sql.call_exchange, plain_path.exchange_params(under_way, None), binary=True)
        assert len(taken.fetchall()) == 1 + 3
        limiting = asyncio.create_task(configure(store, max_running=1))
        _, waits = await asyncio.wait([limiting], timeout=0.3)
        db.commit()
    assert waits, "whoever sets a limit waits for those who have not seen it"
    await limiting
    assert (await store.exchange(Exchange(claim=Claim(worker="w2", limit=5, lease_for=LEASE)))).leases == []


async def test_two_who_purge_at_once_never_take_back_what_was_purged(store):
    with psycopg.connect(store.address.conninfo, autocommit=True) as db:
        for latest in (10, 9):
            db.execute(store._opened._sql.raise_meta, ("purged_pos", str(latest)))
        [(value,)] = db.execute(f"SELECT value FROM {store.address.schema}.meta WHERE name = 'purged_pos'").fetchall()
    assert value == "10"

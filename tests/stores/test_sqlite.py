"""What is SQLite's own: its file, its threads, its clock, and what other processes do to it meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import re
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

from daybreak.api.portal import Portal
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, StoreUnavailable, StoreUnsuitable
from daybreak.core.model import Done, Failed, Failure, JobSpec, Put, QueueSettings, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Purge, Reap, work_topic
from daybreak.stores import sqlite
from daybreak.stores.kernel.exchange import exchange
from daybreak.stores.kernel.insert import insert
from daybreak.stores.sqlite import SqliteStore, schema
from daybreak.stores.sqlite.commit import LINES_PER_ROW
from daybreak.stores.sqlite.engine import Request
from daybreak.stores.sqlite.statements import sql
from daybreak.stores.sqlite.wake import Wake

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class World:
    """Two clocks that the test sets."""

    def __init__(self, wall: int, steady: int) -> None:
        self.now, self.ticks, self.chance = wall, steady, random.Random(1)

    def wall(self) -> int:
        return self.now

    def steady(self) -> int:
        return self.ticks

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(0)


@pytest.fixture
async def store(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        yield store


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2", "3.52.0"])
def test_a_library_with_the_wal_reset_bug_is_refused(version):
    with pytest.raises(StoreUnsuitable, match=r"WAL-reset bug.*install apsw"):
        schema.check_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.53.0", "3.54.1", "4.0"])
def test_a_library_without_it_is_fine(version):
    schema.check_library(version)


def our_threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("daybreak")}


async def test_the_file_is_its_owners_alone(store):
    await Client(store).submit("t")
    locks = Path(f"{store.path}-locks")
    files = [store.path, Path(f"{store.path}-wal"), locks / "write.lock"]
    for name, mode in (*((file, 0o600) for file in files), (locks, 0o700)):
        assert stat.S_IMODE(name.stat().st_mode) == mode, name


async def test_every_commit_is_synced(store):
    engine = store._opened._engine
    assert engine._db.pragma("synchronous") == 2
    assert engine._db.pragma("journal_mode") == "wal"


async def test_two_stores_of_one_process_share_a_file(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db") as one, SqliteStore(tmp_path / "jobs.db") as two:
        clients = Client(one), Client(two)
        await asyncio.gather(*(clients[n % 2].submit("t") for n in range(200)))
        await one.close()
        assert (await clients[1].count())[State.QUEUED] == 200


async def test_totals_are_of_all_who_write_to_a_file(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db") as one, SqliteStore(tmp_path / "jobs.db") as two:
        for store in (one, two, one, one, two):
            await Client(store).submit("t")
        assert [total.n for total in await one.totals()] == [5]
        assert await two.totals() == await one.totals()
    async with SqliteStore(tmp_path / "jobs.db") as store:
        await Client(store).submit("t")
        assert [(total.what, total.n) for total in await store.totals()] == [("submitted", 6)]


async def test_a_request_that_sinks_counts_nothing_wherever_it_stands_in_its_group(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        client, engine = Client(store), store._opened._engine

        def good(tx):
            return insert(tx, [client.spec("t")])

        def bad(tx):
            good(tx)
            raise BadInput("no")

        for group in ([bad, good], [good, bad], [good, bad, good]):
            engine.run([Request(run) for run in group])
        assert [(total.what, total.n) for total in await store.totals()] == [("submitted", 4)]
        assert (await client.count())[State.QUEUED] == 4


def test_every_statement_is_used_and_every_one_used_exists():
    folder = Path(sqlite.__file__).parent
    used = set(re.findall(r"\bsql\.([a-z_]+)\b", "".join(p.read_text() for p in folder.glob("*.py"))))
    assert used == set(sql.names())


# -- its threads -------------------------------------------------------------------------------------------------------


async def test_whoever_asks_while_it_closes_is_answered(tmp_path):
    store = await SqliteStore(tmp_path / "jobs.db").open()
    client = Client(store, patience=timedelta())
    asked = [asyncio.ensure_future(client.submit_many([client.spec("t")])) for _ in range(50)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    asked += [asyncio.ensure_future(client.submit_many([client.spec("t")])) for _ in range(50)]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await closing
        await store.close()
    told = sum(isinstance(answer, list) for answer in answers)
    assert {type(a) for a in answers} <= {list, StoreUnavailable}
    async with SqliteStore(tmp_path / "jobs.db") as store:
        assert (await Client(store).count())[State.QUEUED] == told


async def test_a_claim_that_nobody_waits_for_any_more_takes_nothing(store):
    client = Client(store)
    job = await client.submit("t")
    claiming = asyncio.ensure_future(store.exchange(Exchange(claim=Claim(worker="w"))))
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    await client.submit("t")
    assert (await client.get(job)).attempt == 0


async def test_a_failed_wake_up_does_not_end_the_writer(store, monkeypatch, caplog):
    def fail(topics):
        raise OSError("no more files")

    monkeypatch.setattr(store._opened.wake, "send", fail)
    client = Client(store)
    assert [await client.submit("t") for _ in range(3)]
    assert "after a commit" in caplog.text


async def test_one_bad_request_in_a_group_sinks_itself_alone(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        client, engine = Client(store), store._opened._engine

        def good(tx):
            return insert(tx, [client.spec("t")])

        def bad(tx):
            tx.lane(("q", "t", 1))
            raise BadInput("no")

        answers, _ = engine.run([Request(good), Request(bad), Request(good)])
        assert isinstance(answers[1], BadInput)
        assert [answer[0].verdict for answer in (answers[0], answers[2])] == ["new", "new"]
        assert (await client.count())[State.QUEUED] == 2


async def test_limits_hold_within_one_group_commit(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        client, engine = Client(store), store._opened._engine
        await client.set_queue("default", max_running=1)
        await client.submit_many([client.spec("t") for _ in range(5)])
        claim = Request(lambda tx: exchange(tx, Exchange(claim=Claim(worker="w", limit=5))))
        answers, _ = engine.run([claim, claim, claim])
        assert sum(len(answer.leases) for answer in answers) == 1


async def test_a_read_that_failed_leaves_no_old_snapshot(store):
    client = Client(store)
    await client.submit("t")

    def fail(tx):
        rows = tx.execute("SELECT seq FROM job")
        next(rows)
        raise BadInput("kept", rows)

    with pytest.raises(BadInput):
        await store._read(fail)
    job = await client.submit("t")
    assert await client.get(job)


async def test_a_store_from_before_a_fork_is_refused_in_the_child(store, monkeypatch):
    await Client(store).submit("t")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreUnavailable, match="before a fork"):
        await store.records("queue")


async def test_no_feed_row_grows_with_the_transaction(store):
    client = Client(store)
    await client.submit_many([client.spec("t") for _ in range(1000)])
    rows = apsw.Connection(str(store.path)).execute("SELECT lines FROM feed").fetchall()
    assert max(lines.count(b"\n") + 1 for (lines,) in rows) <= LINES_PER_ROW
    seen, cursor = [], None
    while (feed := await store.events(cursor, limit=300)).events:
        seen += [event.job for event in feed.events]
        cursor = feed.cursor
    assert len(seen) == len(set(seen)) == 1000


def test_watches_on_a_second_loop_are_woken_too(tmp_path):
    async def first():
        store = await SqliteStore(tmp_path / "jobs.db").open()
        watch = store.watch([work_topic("default")])
        watch.close()
        return store

    async def second(store):
        watch = store.watch([work_topic("default")])
        await asyncio.sleep(0)
        async with SqliteStore(tmp_path / "jobs.db") as other:  # as another process would
            await watch.wait(SECOND)  # whatever the first look at the file says
            await Client(other).submit("t")
            woken = await watch.wait(10 * SECOND)
        watch.close()
        await store.close()
        return woken

    store = asyncio.run(first())
    assert asyncio.run(second(store))


def test_watches_on_two_loops_are_both_woken_and_stay_so(tmp_path, monkeypatch):
    monkeypatch.setattr("daybreak.stores.sqlite.store.POLL_INTERVAL", timedelta(hours=1))
    portal = Portal()
    store = portal.run(SqliteStore(tmp_path / "jobs.db").open())
    begun, heard = threading.Event(), threading.Semaphore(0)

    async def listen():
        watch = store.watch([work_topic("default")])
        begun.set()
        while True:
            if await watch.wait(60 * SECOND):
                heard.release()

    async def visit():
        watch = store.watch([work_topic("default")])
        await watch.wait(SECOND / 10)  # whatever the first look at the file says
        await submit_elsewhere(tmp_path)
        assert await watch.wait(60 * SECOND)
        watch.close()

    portal.spawn(listen())
    assert begun.wait(10)
    asyncio.run(visit())
    while heard.acquire(timeout=0.1):
        pass
    asyncio.run(submit_elsewhere(tmp_path))
    assert heard.acquire(timeout=30), "the first loop goes on listening"
    portal.run(store.close())
    portal.close()


async def submit_elsewhere(folder):
    """As another process would."""
    async with SqliteStore(folder / "jobs.db") as other:
        await Client(other).submit("t")


async def test_opening_that_nobody_waits_for_any_more_leaves_it_open_for_the_next(tmp_path, monkeypatch):
    before = our_threads()
    begun, leave = threading.Event(), threading.Event()
    check = schema.check_place

    def slowly(path):
        begun.set()
        assert leave.wait(30)
        check(path)

    monkeypatch.setattr(schema, "check_place", slowly)
    store = SqliteStore(tmp_path / "jobs.db")
    opening = asyncio.ensure_future(store.open())
    await asyncio.to_thread(begun.wait)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    leave.set()
    await asyncio.gather(store.open(), store.open())
    await Client(store).submit("t")
    await store.close()
    assert our_threads() <= before


async def test_a_store_can_be_read_and_closed_where_no_more_threads_start(tmp_path, monkeypatch):
    """As while the interpreter ends, from Python 3.12 on."""
    before = our_threads()

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    store = await SqliteStore(tmp_path / "jobs.db").open()
    client = Client(store)
    job = await client.submit("t")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert (await client.get(job)).state is State.QUEUED
    await store.close()
    assert our_threads() <= before


# -- its clock ---------------------------------------------------------------------------------------------------------

DAY = 86_400_000_000


async def failing_job(store: SqliteStore) -> str:
    client = Client(store)
    job = await client.submit("t")
    [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
    outcome = Failed(Failure(message="", kinds=("OSError",), retry_after=timedelta(minutes=1)))
    await store.exchange(Exchange(settle=[settle(lease, outcome, chance=0.5, by="w")]))
    return job


async def test_time_does_not_go_back_over_a_boot_whatever_the_wall_clock_says(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", world=World(100 * DAY, 10 * DAY), boot="one", threaded=False) as store:
        await failing_job(store)
        await store.purge(Purge())
    # The machine comes back without a battery in its clock.
    async with SqliteStore(tmp_path / "jobs.db", world=World(DAY, 0), boot="two", threaded=False) as store:
        assert (await store.advance()).next_in == timedelta(minutes=1)


async def test_whoever_held_a_lease_before_a_boot_is_dead(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", world=World(100 * DAY, DAY), boot="one", threaded=False) as store:
        await Client(store).submit("t")
        await store.exchange(Exchange(claim=Claim(worker="w", lease_for=timedelta(hours=9))))
        assert await store.reap(Reap(worker="r", watched_for=timedelta())) == []
    async with SqliteStore(tmp_path / "jobs.db", world=World(100 * DAY, 0), boot="two", threaded=False) as store:
        [lease] = await store.reap(Reap(worker="r", watched_for=timedelta()))
        assert (lease.worker, lease.attempt, lease.fence) == ("r", 1, 2)


async def test_a_boot_does_not_end_a_detached_lease(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", world=World(100 * DAY, DAY), boot="one", threaded=False) as store:
        await store.insert([JobSpec(id="here", task="t"), JobSpec(id="away", task="t")])
        here, away = (
            await store.exchange(Exchange(claim=Claim(worker="w", limit=2, lease_for=timedelta(hours=9))))
        ).leases
        beat = Beat(seq=away.seq, fence=away.fence, lease_for=timedelta(days=3), detach=True)
        assert (await store.extend([beat]))[0].held
        [before] = await store.get([away.job])
    world = World(101 * DAY, 0)
    async with SqliteStore(tmp_path / "jobs.db", world=world, boot="two", threaded=False) as store:
        reap = Reap(worker="r", watched_for=timedelta(days=9))
        assert [lease.job for lease in await store.reap(reap)] == [here.job]
        assert await store.get([away.job]) == [before]
        world.ticks = 2 * DAY
        taken = {lease.job: lease.detached for lease in await store.reap(reap)}
        assert taken == {here.job: False, away.job: True}


async def test_a_wall_clock_that_jumps_neither_purges_nor_expires_nor_reaps(tmp_path):
    world = World(100 * DAY, DAY)
    async with SqliteStore(tmp_path / "jobs.db", world=world, threaded=False) as store:
        client = Client(store, world=world)
        done = await client.submit("t", key="k")
        [lease] = (await store.exchange(Exchange(claim=Claim(worker="w")))).leases
        await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w")]))
        waiting = await client.submit("t", expires_in="1h", priority="low")
        held = await client.submit("t")
        await store.exchange(Exchange(claim=Claim(worker="w")))
        world.now += 1000 * DAY
        assert (await store.purge(Purge())).jobs == 0
        assert (await store.advance()).expired == 0
        assert await store.reap(Reap(worker="r", watched_for=timedelta(days=1))) == []
        assert await client.submit("t", key="k") == done
        states = [(await client.get(job)).state for job in (done, waiting, held)]
        assert states == [State.COMPLETED, State.QUEUED, State.RUNNING]


# -- what people do to files -------------------------------------------------------------------------------------------


async def test_a_file_deleted_under_us_takes_no_more_jobs_and_goes_on_once_it_is_back(tmp_path):
    path = tmp_path / "jobs.db"
    async with SqliteStore(path) as store:
        client = Client(store, patience=timedelta())
        kept = await client.submit("t")
        backup = apsw.Connection(str(tmp_path / "backup.db"))
        with backup.backup("main", apsw.Connection(str(path)), "main") as copy:
            copy.step()
        backup.close()
        for name in tmp_path.glob("jobs.db*"):
            if name.is_file():
                name.unlink()
        with pytest.raises(StoreUnavailable, match="was deleted while it was in use"):
            await client.submit("t")
        (tmp_path / "backup.db").rename(path)
        await client.submit("t")
        assert (await client.get(kept)).state is State.QUEUED
        assert (await client.count())[State.QUEUED] == 2


async def test_the_file_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE bills (n)")
    theirs.pragma("user_version", 7)
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnsuitable, match="another program: choose another path"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


async def test_a_reap_that_waited_for_its_turn_takes_no_lease_that_lapsed_meanwhile(tmp_path):
    world = World(100 * DAY, DAY)
    async with SqliteStore(tmp_path / "jobs.db", world=world) as store:
        await Client(store).submit("t")
        await store.exchange(Exchange(claim=Claim(worker="w", lease_for=SECOND)))
        lock = store._opened._write_lock
        with lock.in_process, lock:  # someone is stopped inside a write, and everyone waits
            reaping = asyncio.ensure_future(store.reap(Reap(worker="r", watched_for=timedelta(days=1))))
            await asyncio.sleep(0)
            world.ticks += 60_000_000
        assert await reaping == []
        assert len(await store.reap(Reap(worker="r", watched_for=timedelta(days=1)))) == 1


async def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "jobs.db").symlink_to("jobs.db")
    with pytest.raises(StoreUnsuitable, match="leads back to itself"):
        await SqliteStore(tmp_path / "jobs.db").open()


async def test_no_statement_is_worked_out_anew_when_it_is_used_again(store):
    """A statement with `LIMIT ?` is, unless SQLite is told to keep its plans: its number might change them."""
    client = Client(store)
    claim = Claim(worker="w", queues=("default",), tasks=frozenset({("send", 1)}), limit=2, lease_for=SECOND)
    again: dict[str, int] = {}

    def note(statement):
        again[statement["sql"]] = statement["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"]

    store._opened._engine._db.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    for _ in range(3):
        await client.submit("send")
        [lease] = (await store.exchange(Exchange(claim=claim))).leases
        await store.exchange(Exchange(settle=[settle(lease, Done(b"1"), chance=0.5, by="w")]))
        await store.purge(Purge())
    assert sql.claim_lane in again
    assert {text: n for text, n in again.items() if n} == {}


async def test_all_that_is_told_is_heard_and_what_comes_thick_is_heard_together(tmp_path):
    told, teller = Wake(tmp_path / "wake"), Wake(tmp_path / "wake")
    heard: list[set[str]] = []
    assert told.listen(heard.append)
    try:
        for n in range(8):  # a socket may hold ten, and who has those to read is awake
            teller.send([f"work:{n}", "events"])
        async with asyncio.timeout(30):
            while set().union(*heard) != {"events", *(f"work:{n}" for n in range(8))}:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0)
    finally:
        told.close()
        teller.close()
    assert len(heard) < 8


async def test_a_request_that_fails_when_it_is_written_fails_alone(tmp_path):
    """The rows of a limited queue are written at the end of their request, after its answer is known."""
    async with SqliteStore(tmp_path / "jobs.db") as store:
        limited = msgspec.json.encode(QueueSettings(capacity=100))
        await store.put([Put(kind="queue", name="limited", value=limited)])
        jobs = [JobSpec(id=name, task="t", queue="limited", tags=tags) for name, tags in NAMED]
        asked = [store.insert([job]) for job in jobs]
        first, bad, last = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)
        assert [answer[0].job for answer in (first, last)] == ["a", "c"]
        assert isinstance(bad, Exception)
        assert [job and job.id for job in await store.get(["a", "b", "c"])] == ["a", None, "c"]
        assert (await store.insert([JobSpec(id="d", task="t")]))[0].job == "d"


NAMED = [("a", ()), ("b", ("\ud800",)), ("c", ())]  # half a character cannot be stored

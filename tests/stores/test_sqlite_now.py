"""Inserts by threads that wait for them: in their own thread if nobody else writes, else with the next commit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

import daybreak
from daybreak.client.client import Client
from daybreak.core.errors import StoreError, StoreUnavailable
from daybreak.core.model import State
from daybreak.store.protocol import EVENTS_TOPIC, Claim, Exchange, InsertsNow, Verdict, work_topic
from daybreak.stores.memory import MemoryStore
from daybreak.stores.sqlite import SqliteStore, engine, wal, writer
from daybreak.stores.sqlite.engine import Request
from daybreak.system import platform

SECOND = timedelta(seconds=1)


@pytest.fixture
def runs(store, monkeypatch):
    """Who has used the engine, and for how many requests, one entry for each transaction."""
    seen: list[tuple[str, int]] = []
    real = store._opened._engine.run

    def run(requests):
        seen.append((threading.current_thread().name, len(requests)))
        return real(requests)

    monkeypatch.setattr(store._opened._engine, "run", run)
    return seen


@pytest.fixture
def threads():
    with concurrent.futures.ThreadPoolExecutor(64, thread_name_prefix="caller") as threads:
        yield threads


@contextmanager
def long_write(portal, store):
    """A transaction of the writer thread that lasts until the block ends."""
    begun, leave = threading.Event(), threading.Event()

    def run(ledger):
        begun.set()
        assert leave.wait(30)

    writing = portal.spawn(store._write(run, None))
    assert begun.wait(30)
    try:
        yield
    finally:
        leave.set()
        writing.result(30)


def until(condition, within=30):
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.001)


def queued(portal, client):
    return portal.run(client.count())[State.QUEUED]


# -- where it is done --------------------------------------------------------------------------------------------------


def test_only_stores_that_can_offer_it(store):
    assert isinstance(store, InsertsNow)
    assert not isinstance(MemoryStore(), InsertsNow)


def test_a_lone_caller_writes_in_its_own_thread(portal, store, client, runs, monkeypatch):
    monkeypatch.setattr(
        type(store._opened._engine), "needs_maintenance", False
    )  # the writer thread does that, and then writes
    for _ in range(5):
        [inserted] = store.insert_now([client.spec("t")])
        assert inserted.verdict is Verdict.NEW
    assert runs == [(threading.current_thread().name, 1)] * 5
    assert queued(portal, client) == 5


async def test_also_where_a_loop_runs_in_this_thread(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        client = Client(store)
        [inserted] = store.insert_now([client.spec("t")])
        assert (await client.get(inserted.job)).state is State.QUEUED


async def test_also_without_threads(tmp_path):
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        client = Client(store)
        [inserted] = store.insert_now([client.spec("t")])
        assert (await client.get(inserted.job)).state is State.QUEUED


def test_each_answers_for_itself_in_the_order_asked(portal, store, client):
    specs = [client.spec("t"), client.spec("t", key="k"), client.spec("t", key="k"), client.spec("u", key="k")]
    verdicts = [inserted.verdict for inserted in store.insert_now(specs)]
    assert verdicts == [Verdict.NEW, Verdict.NEW, Verdict.DUPLICATE, Verdict.CONFLICT]
    assert store.insert_now([]) == []


def test_a_thread_behind_a_long_transaction_waits_and_goes_with_the_next(portal, store, client, runs, threads):
    with long_write(portal, store):
        asked = [threads.submit(store.insert_now, [client.spec("t")]) for _ in range(20)]
        until(lambda: store._opened._writer._asked.qsize() == 20)
        assert not any(one.done() for one in asked)
    assert {one.result(30)[0].verdict for one in asked} == {Verdict.NEW}
    assert runs == [("daybreak-writer", 1), ("daybreak-writer", 20)]


def test_whoever_no_longer_waits_is_not_served(portal, store, client, monkeypatch):
    """As when Ctrl-C reaches a thread that stands in line."""

    class Interrupted:
        def acquire(self, timeout=0):
            if timeout:
                raise KeyboardInterrupt

        def release(self):
            pass

    from daybreak.stores.sqlite import writer

    with long_write(portal, store):
        monkeypatch.setattr(writer.threading, "Lock", Interrupted)
        try:
            with pytest.raises(KeyboardInterrupt):
                store.insert_now([client.spec("t")])
        finally:
            monkeypatch.undo()
    assert queued(portal, client) == 0
    store.insert_now([client.spec("t")])
    assert queued(portal, client) == 1


def test_many_threads_share_commits_and_get_their_own_answers(portal, store, client, runs, threads):
    def submit(n):
        jobs = []
        for m in range(50):
            spec = client.spec("t", {"thread": n, "m": m})
            [inserted] = store.insert_now([spec])
            assert (inserted.verdict, inserted.job) == (Verdict.NEW, spec.id)
            jobs.append(spec.id)
        return jobs

    submitted = list(threads.map(submit, range(64)))
    assert queued(portal, client) == 64 * 50
    assert len(runs) < 64 * 50 / 4, "most of them shared a commit"
    assert sum(many for _, many in runs) == 64 * 50
    for n in (0, 31, 63):
        args = [msgspec.json.decode(portal.run(client.get(job)).spec.args) for job in submitted[n]]
        assert args == [{"thread": n, "m": m} for m in range(50)]
    order = [portal.run(client.get(job)).seq for job in submitted[7]]
    assert order == sorted(order), "what one thread asks for in turn is accepted in turn"


def test_lists_of_different_lengths_in_one_commit_are_told_apart(portal, store, client, threads):
    with long_write(portal, store):
        asked = []
        for n in range(1, 8):
            specs = [client.spec("t") for _ in range(n)]
            asked.append((specs, threads.submit(store.insert_now, specs)))
            until(lambda n=n: store._opened._writer._asked.qsize() == n)
    for specs, answers in asked:
        assert [inserted.job for inserted in answers.result(30)] == [spec.id for spec in specs]


def test_one_bad_insert_in_a_group_sinks_itself_alone(store, client):
    bad = msgspec.structs.replace(client.spec("t"), task="\ud800")
    groups = [[client.spec("t")], [client.spec("t"), bad], [client.spec("t")]]
    answers, _ = store._opened._engine.run([Request.insert(specs) for specs in groups])
    assert [type(answer) for answer in answers] == [list, UnicodeEncodeError, list]
    assert [inserted.verdict for inserted in (*answers[0], *answers[2])] == [Verdict.NEW, Verdict.NEW]
    [again] = store.insert_now([groups[1][0]])
    assert again.verdict is Verdict.NEW


def test_both_faces_together(portal, store, client, threads):
    async def submit():
        await asyncio.gather(*(client.submit("t") for _ in range(300)))

    def submit_now():
        for _ in range(30):
            store.insert_now([client.spec("t")])

    asked = [portal.spawn(submit()), *(threads.submit(submit_now) for _ in range(10))]
    for one in asked:
        one.result(60)
    assert queued(portal, client) == 600


def test_a_busy_lone_caller_does_not_starve_the_writer_thread(portal, store, client, threads):
    leave = threading.Event()

    def submit_now():
        while not leave.is_set():
            store.insert_now([client.spec("t")])

    busy = threads.submit(submit_now)
    for _ in range(20):
        portal.spawn(client.submit("t")).result(30)
    leave.set()
    busy.result(30)


# -- what comes after a commit -----------------------------------------------------------------------------------------


def test_whoever_watches_is_woken(portal, store, client):
    async def watching():
        watch = store.watch([work_topic("default")])
        begun.set()
        try:
            return await watch.wait(30 * SECOND)
        finally:
            watch.close()

    begun = threading.Event()
    woken = portal.spawn(watching())
    assert begun.wait(30)
    store.insert_now([client.spec("t")])
    assert woken.result(10)


async def test_another_process_is_woken(tmp_path, monkeypatch):
    monkeypatch.setattr("daybreak.stores.sqlite.store.POLL_INTERVAL", timedelta(hours=1))
    async with SqliteStore(tmp_path / "jobs.db") as store, SqliteStore(tmp_path / "jobs.db") as other:
        watch = other.watch([work_topic("default")])
        await watch.wait(SECOND / 10)  # whatever the first look at the file says
        store.insert_now([Client(store).spec("t")])
        assert await watch.wait(30 * SECOND)
        watch.close()


def test_a_failed_wake_up_fails_no_insert(portal, store, client, monkeypatch, caplog):
    def fail(topics):
        raise OSError("no more files")

    monkeypatch.setattr(store._opened.wake, "send", fail)
    for _ in range(3):
        store.insert_now([client.spec("t")])
    assert "after a commit" in caplog.text
    assert queued(portal, client) == 3


def test_the_log_is_moved_into_the_file_and_the_caller_does_not_wait_for_it(store, client, monkeypatch):
    maintained_by = []
    using = store._opened._engine
    real = using.maintain

    def maintain():
        maintained_by.append(threading.current_thread().name)
        real()

    monkeypatch.setattr(using, "maintain", maintain)
    while using._log._pages < wal.CHECKPOINT_PAGES:
        store.insert_now([client.spec("t") for _ in range(100)])
    until(lambda: using._log._checkpoint_at > wal.CHECKPOINT_PAGES)
    assert set(maintained_by) == {"daybreak-writer"}


# -- when it cannot be -------------------------------------------------------------------------------------------------


def test_a_store_that_is_not_open_says_so(tmp_path, portal):
    store = SqliteStore(tmp_path / "jobs.db")
    with pytest.raises(StoreUnavailable, match="is not open"):
        store.insert_now([])
    portal.run(store.open())
    portal.run(store.close())
    with pytest.raises(StoreUnavailable, match="is not open"):
        store.insert_now([])


def test_whoever_asks_while_it_closes_is_answered(portal, tmp_path, threads):
    store = portal.run(SqliteStore(tmp_path / "jobs.db").open())
    client = Client(store)

    def submit():
        accepted = 0
        while True:
            try:
                accepted += len(store.insert_now([client.spec("t")]))
            except StoreUnavailable:
                return accepted

    asked = [threads.submit(submit) for _ in range(32)]
    until(lambda: store._opened._engine._log._pages > 100)
    portal.run(store.close())
    accepted = sum(one.result(30) for one in asked)
    portal.run(store.open())
    assert queued(portal, client) == accepted > 0
    portal.run(store.close())


def test_closing_waits_for_a_caller_that_writes_itself(portal, tmp_path, threads, monkeypatch):
    store = portal.run(SqliteStore(tmp_path / "jobs.db").open())
    using, writer = store._opened._engine, store._opened._writer
    begun, leave = threading.Event(), threading.Event()

    def run(requests, real=using.run):
        begun.set()
        assert leave.wait(30)
        return real(requests)

    monkeypatch.setattr(using, "run", run)
    client = Client(store)
    inserting = threads.submit(store.insert_now, [client.spec("t")])
    assert begun.wait(30)
    closing = portal.spawn(store.close())
    until(lambda: writer._closed and writer._is_waiting)
    assert not closing.done()
    assert using._db is not None
    leave.set()
    assert inserting.result(30)
    closing.result(30)
    with pytest.raises(StoreUnavailable, match="the store was closed"):  # as one who comes too late to see it
        writer._write_here(Request.insert([client.spec("t")]))


def test_a_file_that_was_deleted_takes_no_more_jobs(store, client):
    store.insert_now([client.spec("t")])
    store.path.rename(store.path.with_name("elsewhere"))
    with pytest.raises(StoreUnavailable, match="was deleted while it was in use"):
        store.insert_now([client.spec("t")])
    store.path.with_name("elsewhere").rename(store.path)
    store.insert_now([client.spec("t")])


def test_what_a_signal_handler_raises_is_not_taken_for_trouble_of_the_disk(portal, store, client, monkeypatch):
    def interrupt(ledger):
        raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"):
        store._opened.write_now(Request(interrupt))
    store.insert_now([client.spec("t")])
    assert queued(portal, client) == 1


@pytest.mark.parametrize("where", ["BEGIN IMMEDIATE", "COMMIT", "INSERT"])
def test_ctrl_c_in_a_transaction_leaves_neither_lock_nor_transaction(portal, store, client, where, monkeypatch):
    """A second one comes while the first is tidied up: then the writer thread does it, also if nobody asks again."""
    using = store._opened._engine
    real, torn = using._roll_back, Torn(using._db, where)

    def roll_back(db):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(using, "_roll_back", roll_back)
    using._db = torn
    with pytest.raises(KeyboardInterrupt):
        store.insert_now([client.spec("t")])
    assert torn.was_torn
    assert using._roll_back == real
    until(lambda: using._is_clean)
    assert not torn.db.in_transaction
    assert turn_is_free(store.path.parent)
    assert not using.using.locked()
    store.insert_now([client.spec("t")])
    assert queued(portal, client) == 1


@pytest.mark.parametrize("which", [1, 2])
def test_ctrl_c_while_the_turn_is_given_back_leaves_it_free(portal, store, client, which, monkeypatch):
    calls, real = [], platform.unlock_byte

    def unlock(fd, byte):
        calls.append(byte)
        if len(calls) == which:
            raise KeyboardInterrupt
        real(fd, byte)

    monkeypatch.setattr(platform, "unlock_byte", unlock)
    with pytest.raises(KeyboardInterrupt):
        store.insert_now([client.spec("t")])
    until(lambda: store._opened._engine._is_clean)
    assert turn_is_free(store.path.parent)
    store.insert_now([client.spec("t")])


class Torn:
    """A connection during whose first statement of a kind Ctrl-C comes."""

    def __init__(self, db, where):
        self.db, self.where, self.was_torn = db, where, False

    def __getattr__(self, name):
        return getattr(self.db, name)

    def execute(self, statement, *bindings):
        self._tear(statement)
        return self.db.execute(statement, *bindings)

    def executemany(self, statement, rows):
        self._tear(statement)
        return self.db.executemany(statement, rows)

    def _tear(self, statement):
        if not self.was_torn and self.where in statement:
            self.was_torn = True
            raise KeyboardInterrupt


INTERRUPTED = """
    import random, signal, threading
    from daybreak.client.client import Client
    from daybreak.stores.sqlite import SqliteStore
    from daybreak.api.portal import Portal

    def interrupt(*_):
        global left
        if left:
            left -= 1
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0)

    chance = random.Random(7)
    portal = Portal()
    store = portal.run(SqliteStore("jobs.db").open())
    client = Client(store)
    engine = store._opened._engine
    signal.signal(signal.SIGALRM, interrupt)
    accepted, interrupted, left = [], 0, 0
    for n in range(400):
        spec = client.spec("t")
        left = chance.choice((1, 1, 3))
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.000_01, 0.000_8), 0.000_02)
            store.insert_now([spec])
            left = 0
            accepted.append(spec.id)
        except KeyboardInterrupt:
            left = 0
            interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        if n % 5 == 0:  # another thread is not held up
            spec = client.spec("t")
            other = threading.Thread(target=store.insert_now, args=([spec],))
            other.start()
            other.join(20)
            assert not other.is_alive(), f"stuck after {n}"
            accepted.append(spec.id)
    assert interrupted > 40, interrupted
    with engine.using:
        engine.recover()
        assert not engine._db.in_transaction
    assert all(portal.run(store.get(accepted))), "what was answered is there"
    print("whole", flush=True)
    input()
    portal.run(store.close())
"""

STRANGER = """
    import os
    from daybreak.system import platform
    fd = os.open("jobs.db-locks/write.lock", os.O_RDWR)
    print([platform.lock_byte(fd, byte, wait=False) for byte in (0, 1)])
"""


def start(folder, program):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(daybreak.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def turn_is_free(folder):
    """A process does not see its own record locks: another one must look."""
    with start(folder, STRANGER) as stranger:
        return stranger.communicate(timeout=30)[0] == "[True, True]\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_ctrl_c_at_any_moment_holds_nobody_up(tmp_path):
    """Real signals at chance moments, some more than once. Neither threads nor other processes are left waiting."""
    with start(tmp_path, INTERRUPTED) as program:
        line = program.stdout.readline()
        is_free = turn_is_free(tmp_path)
        _, trouble = program.communicate("\n", timeout=60)
    assert (line, program.returncode) == ("whole\n", 0), trouble
    assert is_free


# -- on a loop of one's own --------------------------------------------------------------------------------------------


@pytest.fixture
def by_whom(monkeypatch):
    """The threads that ran transactions."""
    seen = []
    answer = engine.Engine._answer

    def watched(self, *args):
        seen.append(threading.current_thread())
        return answer(self, *args)

    monkeypatch.setattr(engine.Engine, "_answer", watched)
    return seen


async def test_whoever_has_a_loop_of_their_own_writes_on_it(tmp_path, by_whom):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        await Client(store).submit("t")
        assert by_whom.pop() is not threading.current_thread()
        with store._opened._engine.using:  # once the thread has done what it does after a commit
            store.own_loop()
        job = await Client(store).submit("t")
        assert by_whom.pop() is threading.current_thread()
        assert (await Client(store).get(job)).state is State.QUEUED


async def test_nobody_is_waited_for_on_a_loop(tmp_path, by_whom):
    async with SqliteStore(tmp_path / "jobs.db") as store, SqliteStore(tmp_path / "jobs.db") as other:
        store.own_loop()
        lock = store._opened._write_lock
        assert lock is other._opened._write_lock, "one lock for both, in one process"
        with lock.in_process:
            asked = asyncio.create_task(Client(store).submit("t"))
            await asyncio.sleep(0.05)  # the loop goes round meanwhile
            assert not asked.done()
        await asked
        assert by_whom.pop() is not threading.current_thread()


async def test_another_process_in_its_turn_is_waited_for_beside_the_loop(tmp_path, by_whom):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        store.own_loop()
        code = """
            import fcntl, sys
            with open(sys.argv[1], "r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
                print("mine", flush=True)
                sys.stdin.read()
        """
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "jobs.db-locks" / "write.lock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
            assert process.stdout.readline() == b"mine\n"
            asked = asyncio.create_task(Client(store).submit("t"))
            await asyncio.sleep(0.1)
            assert not asked.done()
            process.stdin.close()
        await asked
        assert by_whom.pop() is not threading.current_thread()


async def test_a_slow_disk_holds_up_no_loop_for_long(tmp_path, by_whom, monkeypatch):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        store.own_loop()
        commit = engine.Engine._commit

        def slow(self, db):
            time.sleep(0.02)
            commit(self, db)

        monkeypatch.setattr(engine.Engine, "_commit", slow)
        monkeypatch.setattr(writer, "SLOW_FOR", 3600.0)
        for _ in range(5):
            await Client(store).submit("t")
        assert [thread is threading.current_thread() for thread in by_whom] == [True, False, False, False, False]


async def test_trouble_on_the_loop_is_told_and_leaves_nothing_half_done(tmp_path, monkeypatch):
    async with SqliteStore(tmp_path / "jobs.db") as store:
        store.own_loop()
        client = Client(store, patience=timedelta(0))
        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_changes", lambda *_: (_ for _ in ()).throw(apsw.FullError("full")))
            with pytest.raises(StoreError):
                await client.submit("t")
        await client.submit("t")
        assert sum(tally.n for tally in await store.count()) == 1


async def test_who_asked_on_the_loop_goes_on_before_others_are_told(tmp_path, monkeypatch):
    """The caller may be about to start a job; wake-ups can wait."""
    monkeypatch.setattr(writer, "MAX_TIME_ON_LOOP", math.inf)  # else, after a slow commit, the thread does the work
    async with SqliteStore(tmp_path / "jobs.db") as store:
        store.own_loop()
        job = await Client(store).submit("t")
        await asyncio.sleep(0)
        told = []
        monkeypatch.setattr(store._opened._writer, "_wake", told.append)
        claim = Claim(worker="w", queues=("default",), limit=1, lease_for=timedelta(seconds=1))
        assert [lease.spec.id for lease in (await store.exchange(Exchange(claim=claim))).leases] == [job]
        assert told == []
        await asyncio.sleep(0)
        assert told == [{EVENTS_TOPIC}]

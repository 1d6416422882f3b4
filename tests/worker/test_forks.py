"""Forks: files and sockets opened before belong to the parent, the forked process opens its own, and no job is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import pytest

import daybreak
from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

APP = """
    import asyncio, gc, multiprocessing, os, sys, threading, time, traceback
    from daybreak.client.client import Client
    from daybreak.core.errors import StoreUnavailable
    from daybreak.store.protocol import work_topic
    from daybreak.stores.sqlite import SqliteStore, forks
    from daybreak.api.portal import Portal

    class App:
        '''As an app does it: the store is opened on first use, and after a fork dropped, unclosed.'''

        def __init__(self):
            self.portal = Portal()
            self.forget()
            self.portal.on_fork(self.forget)
            self.portal.on_close(self.close)

        def forget(self):
            self.store = self.client = None

        async def close(self):
            if self.store is not None:
                await self.store.close()
            self.forget()

        def submit(self, task):
            if self.store is None:
                self.store = self.portal.run(SqliteStore("jobs.db").open())
                self.client = Client(self.store)
            return self.store.insert_now([self.client.spec(task)])[0].job

    def fork(do, leave=os._exit):
        pid = os.fork()
        if pid:
            return pid
        try:
            do()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        leave(0)

    def ended(pid):
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"

    class Sign:
        '''For parent and child to wait for each other.'''

        def __init__(self):
            self.ends = os.pipe()

        def give(self):
            os.write(self.ends[1], b"x")

        def wait(self):
            os.read(self.ends[0], 1)

    app = App()
"""


def run(folder, program):
    (folder / "program.py").write_text(textwrap.dedent(APP) + textwrap.dedent(program))
    return subprocess.run(
        # Python 3.12 and newer warn of every fork beside threads; this is about what such forks do.
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(daybreak.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def found(folder):
    """The tasks of all jobs in the file, as a process reads them that took no part in the test."""
    async with SqliteStore(folder / "jobs.db") as store:
        tasks = [job.spec.task async for job in Client(store).find_all()]
    db = apsw.Connection(str(folder / "jobs.db"))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    return sorted(tasks)


STORIES = {
    "the child submits with a store of its own": """
        app.submit("before")
        pid = fork(lambda: app.submit("child"))
        app.submit("after")
        ended(pid)
    """,
    "the child ends as a program does": """
        app.submit("before")
        ended(fork(lambda: app.submit("child"), leave=sys.exit))
        app.submit("after")
    """,
    "the child has nothing to do with it": """
        app.submit("before")
        app.portal.spawn(app.client.wait(app.submit("child")))
        ended(fork(lambda: None, leave=sys.exit))
        app.submit("after")
    """,
    "the parent closes first": """
        # Without its own locks, SQLite would delete the WAL into which the forked process commits.
        app.submit("before")
        opened, closed = Sign(), Sign()

        def child():
            app.submit("child")
            opened.give()
            closed.wait()
            app.submit("after")

        pid = fork(child)
        opened.wait()
        app.portal.close()
        closed.give()
        ended(pid)
    """,
    "the parent is long gone": """
        app.submit("before")
        gone, done = Sign(), Sign()

        def child():
            gone.wait()
            app.submit("child")
            app.submit("after")
            done.give()

        pid = fork(child)
        app.portal.close()
        gone.give()
        done.wait()
        ended(pid)
    """,
    "a child of a child": """
        app.submit("before")
        ended(fork(lambda: (app.submit("child"), ended(fork(lambda: app.submit("after"))))))
    """,
    "a child of a child that did nothing itself": """
        app.submit("before")
        ended(fork(lambda: ended(fork(lambda: app.submit("child")))))
        app.submit("after")
    """,
    "the child closes and collects what it was left": """
        app.submit("before")
        store, portal = app.store, app.portal

        def child():
            global store
            try:
                store.insert_now([])
            except StoreUnavailable as error:
                assert "was opened before a fork" in str(error)
            else:
                raise AssertionError("the parent's store was used")
            portal.run(store.close())
            store = None
            gc.collect()
            app.submit("child")

        ended(fork(child, leave=sys.exit))
        app.submit("after")
    """,
    "multiprocessing, fork": """
        app.submit("before")
        process = multiprocessing.get_context("fork").Process(target=app.submit, args=("child",))
        process.start()
        app.submit("after")
        process.join()
        assert process.exitcode == 0
    """,
    "multiprocessing, spawn": """
        def child():
            app.submit("child")

        if __name__ == "__main__":
            app.submit("before")
            process = multiprocessing.get_context("spawn").Process(target=child)
            process.start()
            app.submit("after")
            process.join()
            assert process.exitcode == 0
    """,
}


@pytest.mark.parametrize("story", STORIES)
async def test_no_job_of_parent_or_child_is_lost(tmp_path, story):
    ended = run(tmp_path, STORIES[story])
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert await found(tmp_path) == ["after", "before", "child"]


async def test_forks_beside_threads_that_write(tmp_path):
    ended = run(
        tmp_path,
        """
        app.submit("before")
        leave = threading.Event()
        written = []

        def write():
            while not leave.is_set():
                written.append(app.submit("thread"))

        def search():
            while not leave.is_set():
                app.portal.run(app.client.count())

        threads = [threading.Thread(target=write) for _ in range(4)] + [threading.Thread(target=search)]
        for thread in threads:
            thread.start()
        for n in range(20):
            ended(fork(lambda: app.submit("child"), leave=sys.exit if n % 2 else os._exit))
        leave.set()
        for thread in threads:
            thread.join()
        print(len(written))
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    tasks = await found(tmp_path)
    assert tasks.count("child") == 20
    assert tasks.count("thread") == int(ended.stdout) > 0


def test_a_process_forked_during_a_write_gets_an_error(tmp_path):
    ended = run(
        tmp_path,
        """
        forks.PATIENCE = 0.05
        app.submit("before")
        begun, leave = threading.Event(), threading.Event()
        app.portal.spawn(app.store._write(lambda ledger: (begun.set(), leave.wait(60)), None))
        begun.wait()

        def child():
            try:
                app.submit("child")
            except StoreUnavailable as error:
                print(error, flush=True)

        ended(fork(child, leave=sys.exit))
        leave.set()
        app.submit("after")
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert "forked while another thread was using a SQLite store" in ended.stdout
    assert "the spawn method" in ended.stdout


STRANGER = """
import asyncio, os
from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore
store = asyncio.run(SqliteStore("jobs.db").open())
store.insert_now([Client(store).spec("stranger")])
os._exit(0)  # without closing the store: the WAL stays
"""


@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_a_forked_process_does_not_disturb_the_wake_ups_of_its_parent(tmp_path, leave):
    """The parent still uses the sockets, and their registration in the event loop, after the fork."""
    ended = run(
        tmp_path,
        f"""
        async def watching():
            watch = app.store.watch([work_topic("default")])
            for ready in (begun, again):
                ready.set()
                assert await watch.wait(timedelta(seconds=60)), "not woken"
            watch.close()

        import daybreak.stores.sqlite.store
        from datetime import timedelta
        daybreak.stores.sqlite.store.POLL_INTERVAL = timedelta(hours=1)
        begun, again = threading.Event(), threading.Event()
        app.submit("before")
        store = app.store
        waiting = app.portal.spawn(watching())
        begun.wait()
        [address] = os.listdir("jobs.db-locks/wake")

        def child():
            global store, waiting
            app.portal.run(store.close())
            store = waiting = None
            gc.collect()

        ended(fork(child, leave={leave}))
        assert os.listdir("jobs.db-locks/wake") == [address]
        again.wait()  # the first poll of the file
        import subprocess
        subprocess.run([sys.executable, "-c", {STRANGER!r}], check=True)
        waiting.result(60)
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_forked_process_that_outlives_its_parent_keeps_neither_its_address_nor_its_wal(tmp_path):
    """It keeps neither the address, at which nobody listens any more, nor the WAL, for which it has no locks."""
    ended = run(
        tmp_path,
        f"""
        import subprocess

        async def watch():
            app.store.watch([work_topic("default")])

        def child():
            while os.getppid() == parent:
                time.sleep(0.01)
            assert len(os.listdir("jobs.db-locks/wake")) == 1
            stranger = subprocess.run([sys.executable, "-c", {STRANGER!r}], check=True)
            assert os.listdir("jobs.db-locks/wake") == [], "the parent's address is found dead"

        parent = os.getpid()
        app.submit("before")
        app.portal.run(watch())
        fork(child, leave=sys.exit)
        os.kill(parent, 9)
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", -9)
    assert (tmp_path / "jobs.db-wal").exists()


def test_a_fork_has_its_own_portal(tmp_path):
    ended = run(
        tmp_path,
        """
        async def thread():
            return threading.get_ident()

        portal, forgotten = Portal(), []
        portal.on_fork(lambda: 1 / 0)
        portal.on_fork(lambda: forgotten.append(os.getpid()))
        generation, ours = portal.generation, portal.run(thread())
        portal.spawn(asyncio.sleep(1000))

        def child():
            assert portal.loop is None
            assert portal.generation != generation
            assert forgotten == [os.getpid()]
            assert portal.run(thread()) != threading.get_ident()
            portal.close()

        import logging
        logging.disable()
        ended(fork(child, leave=sys.exit))
        assert portal.generation == generation
        assert portal.run(thread()) == ours
        assert not forgotten
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_fork_in_the_portals_own_thread(tmp_path):
    ended = run(
        tmp_path,
        """
        async def forking():
            return fork(lambda: app.submit("child"))

        app.submit("before")
        ended(app.portal.run(forking()))
        app.submit("after")
        """,
    )
    assert (ended.stderr, ended.returncode) == ("", 0)

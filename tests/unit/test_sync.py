"""The blocking face: threads that wait for a loop, Ctrl-C, and the end of the program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from daybreak.api import portal as portal_module
from daybreak.api.portal import BlockingIterator, Portal, blocking, blocking_iter

ROOT = Path(__file__).parents[2]

who = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def ctrl_c(monkeypatch):
    """Ctrl-C as a terminal sends it, once `when` is set; heard at once or, for this test, far too late."""
    monkeypatch.setattr(portal_module, "SIGNAL_CHECK", 60.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threads: list[threading.Thread] = []

    def send(when: threading.Event) -> None:
        threads.append(threading.Thread(target=lambda: when.wait(30) and os.kill(os.getpid(), signal.SIGINT)))
        threads[-1].start()

    yield send
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGINT, before)


async def answer(value=42):
    await asyncio.sleep(0)
    return value


async def count(to, ended=None) -> AsyncIterator[int]:
    try:
        for n in range(to):
            await asyncio.sleep(0)
            yield n
    finally:
        if ended is not None:
            ended.set()


def run_program(folder, program, *options, then=""):
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program) + textwrap.dedent(then)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(portal_module.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- running -----------------------------------------------------------------------------------------------------------


def test_a_caller_without_a_loop_gets_what_the_coroutine_answers(portal):
    assert portal.run(answer()) == 42


async def test_a_caller_whose_thread_has_a_running_loop_gets_it_too(portal):
    assert portal.run(answer()) == 42
    assert list(portal.run_iter(count(3))) == [0, 1, 2]


def test_there_is_one_thread_and_not_before_it_is_needed(portal):
    assert portal.loop is None
    assert {portal.run(ident()) for _ in range(3)} == {portal._thread.ident}
    assert portal._thread.ident != threading.get_ident()
    assert portal._thread.daemon


def test_threads_that_come_first_together_begin_one_loop(portal, monkeypatch):
    begun, make = [], asyncio.new_event_loop

    def slowly():
        begun.append(make())
        time.sleep(0.05)  # in which the others come
        return begun[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", slowly)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: portal.run(answer(n)), range(8))) == list(range(8))
    assert begun == [portal.loop]


async def ident():
    return threading.get_ident()


def test_an_error_is_raised_where_it_was_asked_for_and_shows_where_it_came_from(portal):
    async def failing():
        raise LookupError("not here")

    with pytest.raises(LookupError, match="not here") as told:
        portal.run(failing())
    assert "in failing" in "".join(traceback.format_tb(told.value.__traceback__))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_error_that_would_end_a_loop_ends_only_its_caller(portal, error):
    async def leave():
        raise error

    with pytest.raises(error):
        portal.run(leave())
    assert portal.run(answer()) == 42


def test_threads_get_their_own_answers(portal):
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        assert list(threads.map(lambda n: portal.run(answer(n)), range(500))) == list(range(500))


def test_what_the_caller_has_set_in_its_context_is_seen(portal):
    async def ask():
        seen = who.get()
        who.set("someone in the loop")
        return seen

    token = who.set("me")
    try:
        assert portal.run(ask()) == "me"
        assert who.get() == "me"
    finally:
        who.reset(token)


def test_another_loop_can_wait_without_standing_still(portal):
    async def main():
        return await asyncio.wrap_future(portal.spawn(answer()))

    assert asyncio.run(main()) == 42


def test_an_error_is_not_kept_alive_by_having_been_raised(portal):
    class Big(Exception):
        gone = threading.Event()

        def __del__(self):
            self.gone.set()

    async def failing():
        raise Big

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Big):
            portal.run(failing())
        assert portal.run(answer()) == 42  # the loop has let go of it too
        assert Big.gone.wait(10)
    finally:
        gc.enable()


# -- inside the loop ---------------------------------------------------------------------------------------------------


def test_a_call_inside_the_portals_own_loop_is_refused_and_does_not_hang(portal):
    async def nested():
        return portal.run(answer())

    with pytest.raises(RuntimeError, match="would deadlock: await its async twin"):
        portal.run(nested())


def test_a_twin_inside_the_portals_own_loop_names_what_to_use(portal):
    face = Face(portal)

    async def nested():
        return face.add(1)

    with pytest.raises(RuntimeError, match=r"add\(\) in the portal's own loop would deadlock: use aadd\(\)"):
        portal.run(nested())


def test_the_portal_cannot_be_closed_from_inside(portal):
    async def close():
        portal.close()

    with pytest.raises(RuntimeError, match="close it from another thread"):
        portal.run(close())


# -- twins -------------------------------------------------------------------------------------------------------------


class Face:
    def __init__(self, portal: Portal) -> None:
        self._portal = portal

    async def aadd(self, a: int, b: int = 2, *, c: int = 0) -> int:
        """The sum."""
        return await answer(a + b + c)

    add = blocking(aadd)

    async def await_(self) -> str:
        return "waited"

    wait = blocking(await_)

    async def acount(self, to: int) -> AsyncIterator[int]:
        """Up to it."""
        for n in range(to):
            yield n

    count = blocking_iter(acount)


def test_a_twin_has_the_signature_and_the_words_of_its_method(portal):
    face = Face(portal)
    assert face.add(1, c=3) == 6
    assert inspect.signature(Face.add) == inspect.signature(Face.aadd)
    assert (Face.add.__doc__, Face.add.__name__, Face.add.__qualname__) == ("The sum.", "add", "Face.add")
    assert (Face.wait.__name__, face.wait()) == ("wait", "waited")
    assert not inspect.iscoroutinefunction(Face.add)


def test_a_twin_of_an_iterator_too(portal):
    assert list(Face(portal).count(3)) == [0, 1, 2]
    assert (Face.count.__doc__, Face.count.__name__) == ("Up to it.", "count")
    assert inspect.signature(Face.count) == inspect.signature(Face.acount)


def test_the_types_of_a_twin_are_those_of_its_method(tmp_path):
    code = """
        from collections.abc import AsyncIterator
        from daybreak.api.portal import BlockingIterator, Portal, blocking, blocking_iter

        class Face:
            def __init__(self) -> None:
                self._portal = Portal()
            async def aadd(self, a: int, b: str = "") -> float:
                return 1.0
            add = blocking(aadd)
            async def acount(self, to: int) -> AsyncIterator[bytes]:
                yield b""
            count = blocking_iter(acount)

        class Homeless:
            async def aadd(self) -> None: ...
            add = blocking(aadd)  # no portal

        reveal_type(Face().add(1, b="x"))
        reveal_type(Face().count(1))
        Face().add("x")  # no int
    """
    (tmp_path / "typed.py").write_text(textwrap.dedent(code))
    source = str(Path(portal_module.__file__).parents[2])
    cache = str(ROOT / ".mypy_cache" / "twins")
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", cache, "typed.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": source},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    told = told.replace("builtins.", "")
    assert 'Revealed type is "float"' in told
    assert 'Revealed type is "daybreak.api.portal.BlockingIterator[bytes]"' in told
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    assert lines == {17, 21}, told


# -- iterating ---------------------------------------------------------------------------------------------------------


def test_an_iterator_fetches_nothing_before_it_is_asked_for(portal):
    begun = threading.Event()

    async def items():
        begun.set()
        yield 1

    found = portal.run_iter(items())
    portal.run(answer())
    assert not begun.is_set()
    assert next(found) == 1
    assert list(found) == []
    assert list(found) == []


def test_a_consumer_that_stops_early_closes_the_generator(portal):
    ended = threading.Event()
    for n in portal.run_iter(count(10, ended)):
        if n == 2:
            break
    assert ended.wait(10)


def test_closing_an_iterator_waits_until_the_generator_has_ended(portal):
    ended = threading.Event()
    with portal.run_iter(count(10, ended)) as items:
        assert next(items) == 0
        assert not ended.is_set()
    assert ended.is_set()
    assert list(items) == []
    items.close()


def test_an_iterator_that_was_never_begun_can_be_closed_or_dropped(portal):
    portal.run_iter(count(1)).close()
    portal.run_iter(count(1))
    assert portal.run(answer()) == 42


def test_an_error_of_a_generator_reaches_its_consumer(portal):
    async def items():
        yield 1
        raise LookupError("no more")

    found = portal.run_iter(items())
    assert isinstance(found, BlockingIterator)
    assert next(found) == 1
    with pytest.raises(LookupError, match="no more"):
        next(found)


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_wakes_the_caller_at_once_and_ends_the_work_first(portal, ctrl_c):
    begun, ended = threading.Event(), threading.Event()

    async def work():
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    ctrl_c(begun)
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        portal.run(work())
    assert ended.is_set()
    assert time.monotonic() - since < 30
    assert portal.run(answer()) == 42


def test_ctrl_c_does_not_wait_long_for_work_that_will_not_end(portal, ctrl_c, monkeypatch):
    monkeypatch.setattr(portal_module, "CANCEL_TIMEOUT", timedelta(milliseconds=50))
    begun, leave = threading.Event(), asyncio.Event()

    async def stubborn():
        begun.set()
        while not leave.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await leave.wait()

    ctrl_c(begun)
    with pytest.raises(KeyboardInterrupt):
        portal.run(stubborn())
    portal.loop.call_soon_threadsafe(leave.set)
    assert portal.run(answer()) == 42


def test_ctrl_c_ends_an_iterator(portal, ctrl_c):
    begun, ended = threading.Event(), threading.Event()

    async def items():
        try:
            yield 1
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    found = portal.run_iter(items())
    assert next(found) == 1
    ctrl_c(begun)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert ended.is_set()
    assert list(found) == []


INTERRUPTED = """
    import asyncio, gc, signal
    from daybreak.api.portal import Portal

    armed = False

    def interrupt(*_):
        global armed
        if armed:  # a late one of the last round, heard by another thread, may come beside this round's own
            armed = False
            raise KeyboardInterrupt

    async def answer(value):
        await asyncio.sleep(0)
        return value

    async def running():
        for _ in range(100):
            await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    portal, interrupted = Portal(), 0
    portal.run(answer(0))
    signal.signal(signal.SIGALRM, interrupt)
    for n in range(3000):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 0.000_005 + n % 100 * 0.000_002)
            assert portal.run(answer(n)) == n
            signal.setitimer(signal.ITIMER_REAL, 0)
            armed = False
        except KeyboardInterrupt:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert interrupted > 100, interrupted
    assert not portal._lock.locked()
    assert portal.run(running()) == 2  # who asks, and who waits for the end
    portal.close()
    print("usable")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_ctrl_c_at_any_moment_leaves_the_portal_usable(tmp_path):
    """Real signals at chance moments. One that comes before `run` has begun leaves a coroutine never awaited."""
    ended = run_program(tmp_path, INTERRUPTED, "-W", "ignore")
    assert ended.stdout == "usable\n", ended.stderr


# -- the end -----------------------------------------------------------------------------------------------------------


def test_closing_cancels_what_runs_and_its_caller_hears_of_it():
    portal, begun = Portal(), threading.Event()

    async def work():
        begun.set()
        await asyncio.Event().wait()

    def ask():
        with pytest.raises(concurrent.futures.CancelledError, match="because the app was closed"):
            portal.run(work())
        return True

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask)
        assert begun.wait(10)
        portal.close()
        assert asked.result(10)


def test_asking_after_closing_begins_anew(portal):
    first = portal.run(ident())
    generation, loop = portal.generation, portal.loop
    portal.close()
    portal.close()
    assert loop.is_closed()
    assert portal.loop is None
    assert portal.generation != generation
    assert portal.run(answer()) == 42
    assert portal.loop is not loop
    assert first


def test_closing_while_threads_ask_hangs_nobody():
    portal = Portal()
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        asked = [threads.submit(ask_often, portal) for _ in range(16)]
        for _ in range(20):
            portal.close()
        assert all(one.result(30) == 50 for one in asked)
    portal.close()


def ask_often(portal):
    answered = 0
    while answered < 50:
        try:
            answered += portal.run(answer(1))
        except concurrent.futures.CancelledError:
            answered += 1
    return answered


def test_what_is_to_be_closed_is_closed_in_the_loop_the_last_one_first(caplog):
    portal, closed = Portal(), []

    async def close(name):
        closed.append((name, threading.get_ident()))
        if name == "b":
            raise OSError("already gone")

    for name in "abc":
        portal.on_close(lambda name=name: close(name))
    thread = portal.run(ident())
    portal.close()
    assert closed == [("c", thread), ("b", thread), ("a", thread)]
    assert "already gone" in caplog.text


PROGRAM = """
    import asyncio, atexit, os, signal, sys, threading, time
    from daybreak.client.client import Client
    from daybreak.store.protocol import job_topic
    from daybreak.stores.sqlite import SqliteStore
    from daybreak.api.portal import Portal

    portal = Portal()
    store = portal.run(SqliteStore("jobs.db").open())
    portal.on_close(store.close)
    client = Client(store)

    def submit():
        return store.insert_now([client.spec("t")])
"""

ENDS = {
    "nothing else": "",
    "work under way": "portal.spawn(asyncio.sleep(1000)); portal.spawn(client.wait(submit()[0].job))",
    "a daemon waits": """
        begun = threading.Event()
        def wait():
            begun.set()
            try:
                portal.run(client.wait(submit()[0].job))
            except BaseException:
                time.sleep(1000)
        threading.Thread(target=wait, daemon=True).start()
        begun.wait()
    """,
    "an iterator not finished": "events = portal.run_iter(client.events(None)); submit(); next(events)",
    "a thread goes on after the main one": """
        def go_on():
            threading.main_thread().join()
            submit()
            portal.run(client.submit("t"))
            assert sum(portal.run(client.count()).values()) == 2
        threading.Thread(target=go_on).start()
    """,
    "asked at exit": "atexit.register(lambda: (submit(), portal.run(client.submit('t'))))",
    "an error": "submit(); sys.exit(3)",
    "an executor": "portal.run(asyncio.to_thread(submit))",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends_cleanly_and_without_a_word(tmp_path, how):
    ended = run_program(tmp_path, PROGRAM, "-W", "error", then=ENDS[how])
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode == (3 if how == "an error" else 0)
    left = {path.name for path in tmp_path.rglob("*")} - {"jobs.db", "jobs.db-locks", "write.lock", "wake"}
    assert not left, "closed properly: neither log nor sockets remain"


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_a_program_that_waits(tmp_path):
    then = """
        job = submit()[0].job
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        portal.run(client.wait(job))
    """
    ended = run_program(tmp_path, PROGRAM, then=then)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_an_interpreter_that_ends_begins_no_new_portal(monkeypatch):
    monkeypatch.setattr(portal_module, "_is_shutting_down", True)
    with pytest.raises(RuntimeError, match="the interpreter is shutting down"):
        Portal().run(answer())

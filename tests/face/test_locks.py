"""Locks: in line by priority, fenced, given up by the dead, refused where they would wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from daybreak import BadInput, Daybreak, LeaseLost, LockCycle, LockShed, LockTimeout, State
from daybreak.api.locks import lock_job, owned_locks
from daybreak.api.locks.lock_wait import LockWait
from daybreak.core.errors import StoreUnavailable, WrongState

SECONDS = 20


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url, by="ann") as app:
        yield app


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)
    return found


def waiting(app) -> int:
    return sum(one.state is State.BLOCKED for one in app.locks())


def test_one_holds_it_and_it_is_free_again(app):
    lock = app.lock("prod")
    with lock as held:
        assert held is lock
        assert lock.is_held
        assert lock.fence == 1
        [one] = app.locks()
        assert (one.locks, one.who, one.state, one.fence) == (("prod",), "ann", State.RUNNING, 1)
        assert lock.position() is None
    assert not lock.is_held
    assert app.locks() == []
    with lock:
        assert lock.fence == 2


def test_a_full_queue_sheds_the_least_urgent_waiter(app):
    app.queue("lock").set(capacity=3, when_full="shed")
    shed, granted = [], []

    def wait(priority: object) -> None:
        try:
            with app.lock("prod", priority=priority, wait="20s"):
                granted.append(priority)
        except LockShed as error:
            shed.append((priority, str(error)))

    with app.lock("prod", priority="background"):
        threads = []
        for count, priority in enumerate(("normal", "low", "emergency"), start=1):
            threads.append(threading.Thread(target=wait, args=[priority]))
            threads[-1].start()
            until(lambda count=count: waiting(app) == count or shed)
        threads[1].join(SECONDS)
        assert [priority for priority, _ in shed] == ["low"]
        [urgent] = [one.job for one in app.locks() if one.priority == 0]
        assert f"this request was pushed out by {urgent}, a more urgent one" in shed[0][1]
        assert waiting(app) == 2
    for thread in threads:
        thread.join(SECONDS)
    assert granted == ["emergency", "normal"]
    assert app.stats("lock").queue.shed == 1


def test_limits_that_are_set_before_the_first_use_leave_it_a_lock(app):
    assert app.resource("lock:prod").set(max_waiting=5).slots == 1
    with app.lock("prod"), pytest.raises(LockTimeout):
        app.lock("prod", wait="0s").acquire()


@pytest.mark.parametrize("slots", [2, "none"])
def test_a_lock_has_one_slot(app, slots):
    with pytest.raises(BadInput, match="a lock has one slot"):
        app.resource("lock:prod").set(slots=slots)


def test_who_waits_is_served_by_priority_then_in_order(app):
    order: list[tuple[str, int]] = []

    def use(name: str, priority: str) -> None:
        with app.lock("prod", priority=priority) as lock:
            order.append((name, lock.fence))

    threads = []
    with app.lock("prod"):
        for n, (name, priority) in enumerate((("a", "low"), ("b", "normal"), ("c", "normal"), ("d", "critical"))):
            threads.append(threading.Thread(target=use, args=(name, priority)))
            threads[-1].start()
            until(lambda n=n: waiting(app) == n + 1)
        assert [one.position for one in app.locks()] == [None, 0, 1, 2, 3]
    for thread in threads:
        thread.join(SECONDS)
    assert [name for name, _ in order] == ["d", "b", "c", "a"]
    assert [fence for _, fence in order] == [2, 3, 4, 5]


def test_a_waiter_can_be_moved_up(app):
    order: list[str] = []

    def use(name: str) -> None:
        with app.lock("prod"):
            order.append(name)

    threads = [threading.Thread(target=use, args=(name,)) for name in "ab"]
    with app.lock("prod"):
        for n, thread in enumerate(threads):
            thread.start()
            until(lambda n=n: waiting(app) == n + 1)
        [_, _, last] = app.locks()
        app.job(last.job).reprioritise("high")
    for thread in threads:
        thread.join(SECONDS)
    assert order == ["b", "a"]


def test_waiting_too_long_says_who_holds_it_and_leaves_the_line(app):
    with app.lock("prod"):
        with pytest.raises(LockTimeout, match="held by ann"):
            app.lock("prod", wait="50ms").acquire()
        with pytest.raises(TimeoutError):
            app.lock("prod", wait="50ms").acquire()
        assert waiting(app) == 0
    with app.lock("prod", wait="5s"):
        pass


def test_one_who_is_taken_out_of_line_is_told(app):
    trouble: list[Exception] = []

    def use() -> None:
        try:
            app.lock("prod").acquire()
        except WrongState as told:
            trouble.append(told)

    thread = threading.Thread(target=use)
    with app.lock("prod"):
        thread.start()
        until(lambda: waiting(app) == 1)
        app.job(app.locks()[1].job).cancel()
        thread.join(SECONDS)
    assert "someone cancelled this wait" in str(trouble[0])


def test_several_locks_are_all_or_none(app):
    with app.lock("b"):
        with pytest.raises(LockTimeout):
            app.lock("a", "b", wait="50ms").acquire()
        with app.lock("a", wait="5s"):
            pass
    with app.lock("b", "a") as lock:
        assert lock.names == ("a", "b")
        with pytest.raises(LockTimeout):
            app.lock("a", wait="50ms").acquire()


def test_as_a_decorator(app):
    seen = []

    @app.lock("prod")
    def deploy(n: int) -> int:
        """Deploys."""
        seen.append(len(app.locks()))
        return n + 1

    assert deploy(1) == 2
    assert deploy.__doc__ == "Deploys."
    assert seen == [1]

    @app.lock("prod")
    async def adeploy(n: int) -> int:
        return n + len(await app.alocks())

    assert asyncio.run(adeploy(1)) == 2


def test_in_async_code(app):
    async def main() -> list[int]:
        fences = []

        async def use() -> None:
            async with app.lock("prod") as lock:
                fences.append(lock.fence)

        await asyncio.gather(*(use() for _ in range(5)))
        return fences

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]


def test_cancelling_a_waiter_takes_it_out_of_line(app):
    async def main() -> None:
        async with app.lock("prod"):
            task = asyncio.create_task(app.lock("prod").aacquire())
            while sum(one.state is State.BLOCKED for one in await app.alocks()) == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(500):
                if len(await app.alocks()) == 1:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("it still stands in line")

    asyncio.run(main())


def test_one_cancelled_in_the_moment_of_its_grant_does_not_keep_it(app):
    async def main() -> None:
        task = asyncio.create_task(app.lock("prod").aacquire())
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251 - the grant comes while this loop hears of nothing
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).arelease()
        for _ in range(500):
            if not await app.alocks():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it is still held")

    asyncio.run(main())


def test_the_error_of_the_block_is_what_is_heard(app):
    with pytest.raises(KeyError), app.lock("prod"):
        raise KeyError("x")
    assert app.locks() == []


def test_a_lock_in_use_is_not_taken_twice(app):
    lock = app.lock("prod")
    with lock, pytest.raises(BadInput, match="in use"):
        lock.acquire()


@pytest.mark.parametrize(
    ("names", "said", "named"),
    [
        ((), {}, "needs a name"),
        (("a", "a"), {}, "twice"),
        (("",), {}, "not a name"),
        ((7,), {}, "not a name"),
        (("a\x1b[2J",), {}, "control character"),
        (("a",), {"wait": 5}, "wait"),
        (("a",), {"lease": "1ms"}, "lease"),
        (("a",), {"priority": "soon"}, "priority"),
    ],
)
def test_what_cannot_be_right_is_named(app, names, said, named):
    with pytest.raises(BadInput, match=named):
        app.lock(*names, **said)


def test_who_does_not_wait_at_all_tries_once(app):
    with app.lock("prod", wait="0s"):
        with pytest.raises(LockTimeout):
            app.lock("prod", wait="0s").acquire()
        assert waiting(app) == 0


def test_a_lock_still_excludes_after_its_app_was_closed(app):
    for _ in range(2):
        with app.lock("prod"), pytest.raises(LockTimeout):
            app.lock("prod", wait="20ms").acquire()
        app.close()


def test_one_lock_object_in_two_threads_is_refused_and_not_left_held(app):
    lock, ended = app.lock("prod", lease="1s"), []

    def use() -> None:
        try:
            with lock:
                time.sleep(0.2)
            ended.append("held")
        except BadInput as trouble:
            ended.append(str(trouble))

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(ended) == 2
    assert "held" in ended
    assert all("in use" in word for word in ended if word != "held")
    assert app.locks() == []


def test_a_forked_child_does_not_give_back_its_parents_lock(tmp_path):
    code = f"""
import os
from daybreak import Daybreak
app = Daybreak("sqlite:///{tmp_path}/jobs.db")
lock = app.lock("prod", lease="30s").acquire()
if not (pid := os.fork()):
    assert not lock.is_held
    lock.release()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print([one.state.value for one in app.locks()], lock.is_held)
lock.release()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == "['running'] True\n", done.stderr


def test_what_goes_wrong_while_it_is_renewed_is_told(app, monkeypatch):
    from daybreak.api.locks import lock_job

    async def broken(*_: object) -> bool:
        raise RuntimeError("odd")

    monkeypatch.setattr(lock_job, "renew", broken)
    lost = threading.Event()
    lock = app.lock("prod", lease="400ms", on_lost=lambda _: lost.set())
    lock.acquire()
    assert lost.wait(SECONDS)
    assert not lock.is_held


# -- knots -------------------------------------------------------------------------------------------------------------


def test_two_who_wait_for_one_another_are_told_apart_and_the_youngest_is_refused(app):
    ended: list[tuple[str, str]] = []
    both_hold = threading.Barrier(2)

    def nest(first: str, second: str, pause: float) -> None:
        try:
            with app.lock(first):
                both_hold.wait(SECONDS)
                time.sleep(pause)
                with app.lock(second):
                    ended.append((first, "got both"))
        except LockCycle as trouble:
            ended.append((first, str(trouble)))

    threads = [threading.Thread(target=nest, args=args) for args in (("a", "b", 0), ("b", "a", 0.2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert dict(ended)["a"] == "got both"
    assert "ann waits for" in dict(ended)["b"]
    assert app.locks() == []


def test_a_task_that_began_inside_a_block_does_not_hold_its_lock(app):
    async def main() -> int:
        async def later() -> int:
            async with app.lock("a", wait="20s") as lock:
                return lock.fence

        async with app.lock("a"):
            task = asyncio.create_task(later())
            await asyncio.sleep(0.8)
        return await task

    assert asyncio.run(main()) == 2


def test_one_who_waits_for_himself_is_refused(app):
    with app.lock("prod"), pytest.raises(LockCycle):
        app.lock("prod", wait="10s").__enter__()


def test_the_holder_that_waits_inherits_the_priority_of_those_who_wait_for_it(app):
    """Low holds a and waits for b; an urgent one waits for a: low must get b before a normal one does."""
    order: list[str] = []
    holds_a = threading.Event()

    def low() -> None:
        with app.lock("a", priority="low"):
            holds_a.set()
            with app.lock("b", priority="low"):
                order.append("low")

    def use(name: str, lock: str, priority: str) -> None:
        with app.lock(lock, priority=priority):
            order.append(name)

    threads = [threading.Thread(target=low)]
    with app.lock("b"):
        threads[0].start()
        assert holds_a.wait(SECONDS)
        until(lambda: waiting(app) == 1)
        for n, args in enumerate((("normal", "b", "normal"), ("urgent", "a", "critical"))):
            threads.append(threading.Thread(target=use, args=args))
            threads[-1].start()
            until(lambda n=n: waiting(app) == n + 2)
        until(lambda: any(one.locks == ("b",) and one.priority == 1 for one in app.locks()))
    for thread in threads:
        thread.join(SECONDS)
    assert order.index("low") < order.index("normal")


# -- the dead and the lost ---------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from daybreak import Daybreak
app = Daybreak(sys.argv[1], by="other")
with app.lock("prod", lease="1s") as lock:
    print(lock.fence, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lock `prod` of the same store."""
    started: list[subprocess.Popen[str]] = []

    def start(url: str) -> subprocess.Popen[str]:
        script = tmp_path / "hold.py"
        script.write_text(HOLD)
        process = subprocess.Popen([sys.executable, str(script), url], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_killed_holder_gives_it_up_within_two_leases(tmp_path, other):
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db", by="ann") as app:
        app.locks()
        process = other(app.settings.url)
        process.kill()
        process.wait()
        with app.lock("prod", wait="15s") as lock:
            assert lock.fence == 2


def test_a_zombie_holder_is_refused_by_a_fenced_server(tmp_path, other):
    """Stopped until its lease ran out and another holds the lock: what it then writes under its fence is refused."""

    class FencedFile:
        def __init__(self) -> None:
            self.highest, self.written = 0, []

        def write(self, fence: int, data: str) -> bool:
            if fence < self.highest:
                return False
            self.highest = fence
            self.written.append(data)
            return True

    server = FencedFile()
    with Daybreak(f"sqlite:///{tmp_path}/jobs.db", by="ann") as app:
        app.locks()
        process = other(app.settings.url)
        assert server.write(1, "by the first holder")
        os.kill(process.pid, signal.SIGSTOP)
        with app.lock("prod", wait="20s") as lock:
            assert server.write(lock.fence, "by the second")
            os.kill(process.pid, signal.SIGCONT)
            assert not server.write(1, "by the zombie")
    assert server.written == ["by the first holder", "by the second"]


def test_a_lock_that_was_taken_away_is_known_to_be_lost(app):
    lost = threading.Event()
    lock = app.lock("prod", lease="600ms", on_lost=lambda _: lost.set())

    async def force() -> None:
        await owned_locks.release(await app.client(), ["prod"], None)

    lock.acquire()
    app.portal.run(force())
    assert lost.wait(SECONDS)
    assert not lock.is_held
    with pytest.raises(LeaseLost):
        lock.check()
    with pytest.raises(LeaseLost):
        lock.release()
    with app.lock("prod", wait="5s") as again:
        assert again.fence == 2


def test_a_lock_is_kept_for_as_long_as_the_block_lasts(app):
    with app.lock("prod", lease="600ms") as lock:
        time.sleep(2)
        assert lock.is_held
        with pytest.raises(LockTimeout):
            app.lock("prod", wait="50ms").acquire()


def test_what_was_given_back_by_another_process_is_free(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    code = f"""
from daybreak import Daybreak
app = Daybreak({url!r})
lock = app.lock("prod", lease="60s")
lock.acquire()
lock.release()
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, timeout=30, cwd=Path(tmp_path)).returncode == 0
    with Daybreak(url) as app, app.lock("prod", wait="5s") as lock:
        assert lock.fence == 2


def test_a_lock_that_was_waited_for_long_is_ours_when_it_is_granted(app):
    """Its lease counts from the grant, not from when its place in line was last looked at."""
    first = app.lock("x").acquire()
    threading.Timer(2.0, first.release).start()
    second = app.lock("x", lease="500ms")
    second.acquire()
    second.check()
    second.release()


def test_a_wait_that_ran_out_counts_as_one(app):
    with app.lock("x"):
        for wait in ("0s", "100ms"):
            with pytest.raises(LockTimeout):
                app.lock("x", wait=wait).acquire()
    stats = app.stats("lock").queue
    assert (stats.submitted, stats.completed, stats.timeouts, stats.cancelled) == (3, 1, 2, 0)
    assert stats.last_ran > timedelta(milliseconds=50)


def test_who_a_lock_is_for_may_be_said(app):
    with app.lock("x", owner="pr-812"):
        [holder] = app.locks()
        assert holder.who == "pr-812"


def test_a_lock_that_was_granted_and_could_not_be_kept_is_given_back(app, monkeypatch):
    granted = LockWait.until_granted

    async def noticed_late(self, provided):
        lease = await granted(self, provided)
        self.granted_after -= 100
        return lease

    async def renew(*_):
        raise StoreUnavailable("gone")

    monkeypatch.setattr(LockWait, "until_granted", noticed_late)
    monkeypatch.setattr(lock_job, "renew", renew)
    lock = app.lock("x")
    with pytest.raises(StoreUnavailable):
        lock.acquire()
    assert not lock.is_held
    monkeypatch.undo()
    with app.lock("x", wait="500ms"):
        pass
    with lock:
        lock.check()

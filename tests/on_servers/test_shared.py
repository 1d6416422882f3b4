"""Limits, breakers and locks over several processes that are killed, on every store that processes can share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import shared_tasks
from server_stores import place_on
from shared_tasks import app, ask, call, simulate

from daybreak import LockTimeout, State
from daybreak.core.model import Health

HERE = Path(__file__).parent
IS_LONG = os.environ.get("DAYBREAK_TORTURE") == "long"
WORKERS, JOBS = (8, 300) if IS_LONG else (4, 90)
CALLS = 5000 if IS_LONG else 1000
IN_HAND = 100
KILL_EVERY = 0.5


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    with ExitStack() as around:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/jobs.db"
        else:
            yield around.enter_context(place_on(request.param))


@pytest.fixture
def start_worker(url, tmp_path, monkeypatch):
    """Starts workers of `shared_tasks` on the store; whatever still runs at the end is killed."""
    monkeypatch.setenv(shared_tasks.FOLDER, str(tmp_path))
    app.close()
    app.use(url)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        words = ["worker", str(HERE / "shared_tasks.py"), "--url", url, "--lease", "1s", "-c", "1"]
        log = (tmp_path / "workers.log").open("ab")
        started.append(
            subprocess.Popen([sys.executable, "-m", "daybreak.cli", *words], stdout=log, stderr=log, cwd=tmp_path)
        )
        log.close()
        return started[-1]

    yield start
    app.close()
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(holds, within=60.0):
    end = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)
    return found


def running() -> int:
    async def count() -> int:
        return (await (await app.client()).count(task="simulate"))[State.RUNNING]

    return app.portal.run(count())


def test_cases_13_and_21_slots_hold_and_come_back_while_workers_are_killed(start_worker):
    """Lost releases do not wedge; a limit changed at run time is never exceeded, with several processes."""
    jobs = simulate.submit_many([{"n": n, "seconds": 0.05} for n in range(JOBS)])
    plecs = app.resource("licence")
    workers = [start_worker() for _ in range(WORKERS)]
    until(lambda: running() > 0)
    most, limit, kills = 0, 3, 0
    kill_at = time.monotonic() + KILL_EVERY
    deadline = time.monotonic() + 240
    while app.queue("default").stats().active:
        assert time.monotonic() < deadline, plecs.info()
        seen = running()
        most = max(most, seen)
        assert seen <= limit, f"{seen} leases at once, {limit} slots"
        assert plecs.info().used <= limit
        if kills < JOBS // 15 and time.monotonic() > kill_at:
            kill_at = time.monotonic() + KILL_EVERY
            workers[kills % WORKERS].kill()
            workers[kills % WORKERS].wait()
            workers[kills % WORKERS] = start_worker()
            kills += 1
        if kills == JOBS // 30 and limit == 3:
            limit = 5
            plecs.set(slots=5)
    assert most >= 3
    assert [job.result() for job in jobs] == list(range(JOBS))
    info = plecs.info()
    assert (info.used, info.waiting, info.slots) == (0, 0, 5)


def test_case_22_a_breaker_shared_by_workers_opens_probes_and_closes(start_worker, tmp_path):
    """Opens after 5, a half-open probe, closes; a failed probe reopens."""
    jobs = ask.submit_many([{"n": n} for n in range(6)])
    server = app.resource("server")
    for _ in range(2):
        start_worker()
    until(lambda: server.info().opened >= 1)
    opened = server.info()
    assert opened.failures >= 5
    until(lambda: server.info().waiting == len(jobs) or server.info().opened > 1)
    asked = len(words(tmp_path))
    until(lambda: server.info().opened >= 3)
    assert len(words(tmp_path)) - asked <= 3, "one probe at a time, and each that failed reopened it"
    assert {job.state() for job in jobs} <= {State.BLOCKED, State.SCHEDULED, State.RUNNING, State.QUEUED}
    (tmp_path / "well").touch()
    assert sorted(job.result(timeout="60s") for job in jobs) == list(range(6))
    until(lambda: server.info().breaker == "closed")
    info = server.info()
    assert (info.failures, info.used, info.waiting) == (0, 0, 0)


HOLD = """
import sys, time
from daybreak import Daybreak
with Daybreak(sys.argv[1]).lock("prod", lease="1s") as lock:
    print(lock.fence, flush=True)
    time.sleep(60)
"""


def test_case_25_a_waiter_that_gave_up_leaves_the_line_at_once_and_is_never_granted(start_worker, url):
    """Also: who is killed with it in hand loses it, and those who wait get it by priority."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(LockTimeout):
            app.lock("prod", wait="200ms").acquire()
        assert [one.state for one in app.locks()] == [State.RUNNING], "nobody stands in line"
        order: list[tuple[str, int]] = []

        def use(priority: str) -> None:
            with app.lock("prod", priority=priority, wait="60s") as lock:
                order.append((priority, lock.fence))

        threads = [threading.Thread(target=use, args=(priority,)) for priority in ("low", "normal", "critical")]
        for n, thread in enumerate(threads):
            thread.start()
            until(lambda n=n: len(app.locks()) == n + 2)
        holder.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        assert order == [("critical", 2), ("normal", 3), ("low", 4)]
        assert app.locks() == []
    finally:
        holder.kill()
        holder.communicate()


def test_retries_of_a_failing_resource_stay_within_their_budget_and_it_recovers(start_worker, tmp_path):
    """Every job of many fails at first: the resource gets at most a tenth more than its first tries, until it works."""
    call.submit_many([{"n": n} for n in range(CALLS)])
    for _ in range(2):
        start_worker()
    until(lambda: app.portal.run(is_spared()), within=60.0)
    early = words(tmp_path).count("retry")  # before it was known to fail
    until(lambda: words(tmp_path).count("first") >= CALLS, within=120.0)
    # Some were in hand when it became known; without a budget there would be many times as many.
    assert words(tmp_path).count("retry") <= CALLS / 10 + early + IN_HAND
    until(lambda: app.resource("backend").info().retries_waiting > CALLS / 2)
    (tmp_path / "well").touch()
    # With work that succeeds it is soon trusted again; else, by a retry each second, within a minute.
    more = 0 if IS_LONG else 1000
    call.submit_many([{"n": n} for n in range(more)])
    until(lambda: app.stats("default").queue.completed == CALLS + more, within=120.0)
    stats = app.stats("default")
    assert (stats.queue.errors, stats.queue.waiting) == (0, 0)
    assert stats.retries.successful >= CALLS - IN_HAND  # the last may have begun when it just worked again
    assert stats.retries.spared >= CALLS / 2


def words(folder):
    """The word of each line that is there to its end: a worker may be writing the last one."""
    file = folder / "lines"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [line.split()[2] for line in lines if line.endswith("\n")]


async def is_spared() -> bool:
    records = await (await app.client()).store.records("health", "backend")
    return any(msgspec.json.decode(record.value, type=Health).spare_for for record in records)

"""The cache with real workers and several processes, on every store that processes can share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import cache_tasks
import pytest
from cache_tasks import app, flaky, hold, large, runs, simulate, slow
from server_stores import place_on

from daybreak import Cache, JobFailed, State

HERE = Path(__file__).parent
EACH = 250 if os.environ.get("DAYBREAK_TORTURE") == "long" else 25  # submits of each of four processes


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    with ExitStack() as around:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/jobs.db"
        else:
            yield around.enter_context(place_on(request.param))


@pytest.fixture
def start_worker(url, tmp_path, monkeypatch):
    """Starts workers on the store; whatever still runs at the end is killed."""
    monkeypatch.setenv(cache_tasks.FOLDER, str(tmp_path))
    app.close()
    app.use(url)
    started: list[subprocess.Popen[bytes]] = []

    def start(processes: int = 2) -> subprocess.Popen[bytes]:
        words = ["worker", str(HERE / "cache_tasks.py"), "--url", url, "--lease", "1s", "-c", str(processes)]
        with (tmp_path / "workers.log").open("ab") as log:
            command = [sys.executable, "-m", "daybreak.cli", *words]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True))
        return started[-1]

    yield start
    app.close()
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(holds, within=60.0):
    end = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)
    return found


def test_one_of_many_equal_jobs_runs_and_all_get_its_result(start_worker):
    jobs = simulate.submit_many([{"n": 21}] * 300)
    assert jobs[1].info().blocked_on == f"flight {jobs[0].info().spec.flight}"
    start_worker()
    assert {job.result("60s") for job in jobs} == {42}
    assert runs() == ["21"]
    assert {job.info().cached_from for job in (jobs[1], jobs[150], jobs[299])} == {jobs[0].id}
    figures = app.cache.stats()
    assert (figures.entries, figures.hits) == (1, 299)
    jobs[0].remove()  # its result lives on in those that have it, and for later ones
    assert jobs[299].result() == simulate.submit(21).result() == 42
    assert simulate.submit(21).state() is State.COMPLETED


def test_four_processes_submit_the_same_and_it_runs_once(start_worker, url, tmp_path):
    start_worker()
    command = [sys.executable, str(HERE / "cache_tasks.py"), url, "7", str(EACH)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=90)[0] for process in processes] == [f"{EACH}\n"] * 4
    assert runs() == ["7"]
    assert app.cache.stats().hits == 4 * EACH - 1


def test_a_success_on_a_retry_is_kept_and_a_failure_is_not(start_worker):
    start_worker()
    with pytest.raises(JobFailed):
        flaky.using(retry=1).submit(good_at=3).result("60s")
    assert app.cache.stats().entries == 0
    job = flaky.submit(good_at=3)
    assert job.result("60s") == 3
    hit = flaky.submit(good_at=3)
    assert (hit.state(), hit.info().cached_from, hit.result()) == (State.COMPLETED, job.id, 3)
    assert runs() == ["1", "1", "2", "3"]


def test_a_leader_whose_worker_is_killed_still_leads(start_worker, tmp_path):
    worker = start_worker(1)
    leader, *followers = slow.submit_many([{"name": "go"}] * 5)
    until(runs)
    os.killpg(worker.pid, signal.SIGKILL)
    start_worker(1)
    until(lambda: len(runs()) == 2)
    assert {job.state() for job in followers} == {State.BLOCKED}
    (tmp_path / "go").touch()
    assert [job.result("60s") for job in (leader, *followers)] == ["go"] * 5
    assert leader.info().attempt == 2
    assert len(runs()) == 2


def test_a_leader_that_is_cancelled_hands_over(start_worker, tmp_path):
    leader, *followers = slow.submit_many([{"name": "go"}] * 4)
    start_worker(1)
    until(runs)
    assert leader.cancel().verdict == "requested"
    followers[1].cancel()
    leader.wait("60s")
    assert leader.state() is State.CANCELLED
    (tmp_path / "go").touch()
    assert [followers[n].result("60s") for n in (0, 2)] == ["go", "go"]
    assert followers[1].state() is State.CANCELLED


def test_a_hit_waits_for_nothing_while_every_slot_is_held_and_the_queue_is_paused(start_worker, tmp_path):
    start_worker()
    known = simulate.submit(1)
    known.result("60s")
    holder = hold.submit("release")
    until(lambda: holder.state() is State.RUNNING)
    app.queue("default").pause()
    hit = simulate.submit(1)
    assert (hit.state(), hit.result("5s"), hit.info().cached_from) == (State.COMPLETED, 2, known.id)
    assert app.resource("licence").info().used == 1
    (tmp_path / "release").touch()


def test_a_result_is_used_as_long_as_its_ttl_and_not_longer(start_worker):
    start_worker()
    brief = simulate.using(cache=Cache(ttl="1500ms"))
    first = brief.submit(5)
    first.result("60s")
    assert brief.submit(5).info().cached_from == first.id
    until(lambda: not app.cache.entries())
    anew = brief.submit(5)
    assert anew.result("60s") == 10
    assert anew.info().cached_from is None
    assert runs() == ["5", "5"]


def test_what_was_used_longest_ago_makes_room(start_worker):
    start_worker(1)
    for n in (1, 2):  # two results of 1,500 bytes fit into 4 KiB
        large.submit(n).result("60s")
    assert large.submit(1).info().cached_from is not None  # used again
    large.submit(3).result("60s")
    assert {large.submit(n).info().cached_from is not None for n in (1, 3)} == {True}
    assert app.cache.stats().bytes <= 4096
    again = large.submit(2)
    assert (again.result("60s"), again.info().cached_from) == ("x" * 1500, None)


def test_why_and_drops_on_every_store(start_worker):
    start_worker()
    simulate.submit(1).result("60s")
    other = simulate.submit(2)
    other.result("60s")
    why = app.cache.why(other)
    assert [(one.kind, one.name, one.before, one.now) for one in why.differences] == [("argument", "n", "1", "2")]
    hit = simulate.submit(1)
    assert app.cache.invalidate(job=hit) == 1
    assert hit.result() == 2
    assert app.cache.clear() == 1
    assert simulate.submit(1).info().cached_from is None

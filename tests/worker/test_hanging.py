"""A job that shows no sign of life is ended and its stack is logged; a job that is alive is left alone."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import worker_hangs as hangs
from worker_processes import ask

from daybreak import Daybreak, JobFailed
from daybreak.core.model import JobSpec, Lease, Options
from daybreak.system.platform import ProcessActivity, ProcessScan
from daybreak.system.ports import Clock, RealWorld
from daybreak.worker.launcher import ChildProcess
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.supervisor import hang_detector
from daybreak.worker.supervisor.child import Child, HeldLease
from daybreak.worker.supervisor.hang_detector import MIN_CPU, HangDetector

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only progress and log lines are seen")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    hangs.app.use(f"sqlite:///{tmp_path_factory.mktemp('hangs')}/jobs.db")
    with hangs.app.worker(lease_for="1s", processes=len(LIVING)) as worker:
        yield worker
    hangs.app.close()


def failed(job):
    with pytest.raises(JobFailed) as caught:
        job.result(timeout="20s")
    return caught.value


def test_a_job_that_hangs_is_ended_and_its_stack_is_logged(worker, caplog):
    with caplog.at_level(logging.ERROR, logger="daybreak.worker"):
        job = hangs.sleeps_for_ever.submit()
        error = failed(job)
    assert error.reason == "timeout"
    assert "showed no sign of life" in str(error)
    assert "no progress, CPU time or output" in str(error)
    stack = job.info().failure.traceback
    assert "waits_for_nobody" in stack
    assert "time.sleep(60)" in stack
    [line] = [record.getMessage() for record in caplog.records if "ending it" in record.getMessage()]
    assert "sleeps_for_ever" in line
    assert "waits_for_nobody" in line


def test_a_job_that_only_polls_counts_as_hanging(worker):
    job = hangs.polls.submit()
    assert "showed no sign of life" in str(failed(job))
    assert "polls" in job.info().failure.traceback


def test_the_stack_of_a_job_that_holds_the_gil_is_obtained_by_a_signal(worker):
    job = hangs.holds_the_interpreter.submit()
    assert "showed no sign of life" in str(failed(job))
    assert "holds_the_interpreter" in job.info().failure.traceback


LIVING = {
    "computes": (hangs.computes, 3.0),
    "computes a little": (hangs.computes_a_little, 4.0),
    "has another process compute": (hangs.has_another_compute, 3.0),
    "has one in another session compute": (hangs.has_a_session_compute, 3.0),
    "has one compute that its parent left": (hangs.has_an_orphan_compute, 4.5),
    "tells of progress": (hangs.tells_of_progress, 8),
    "prints": (hangs.prints, 8),
}


@pytest.fixture(scope="module")
def living(worker):
    """All run at once, each for longer than it may be silent."""
    return {what: task.submit(given) for what, (task, given) in LIVING.items()}


@pytest.mark.parametrize("what", LIVING)
def test_a_job_that_shows_signs_of_life_is_left_alone(living, what):
    assert living[what].result(timeout="30s") == "done"


def test_a_job_that_hung_is_retried_with_the_same_limit(worker):
    job = hangs.hangs_once.submit()
    assert job.result(timeout="20s") == 2
    assert job.info().timeouts == 0
    assert [event.kind for event in job.history() if event.error] == ["retrying"]


@pytest.mark.parametrize("task", [hangs.sleeps_for_ever, hangs.sleeps_without_a_limit], ids=["limited", "unlimited"])
def test_a_job_that_hung_is_recorded_with_the_time_it_ran(worker, task):
    """Not its whole time limit, and not 0 if it has no limit."""
    failed(task.submit())
    totals = ask(hangs.app, lambda client: client.store.totals())
    hung = [one for one in totals if one.task == task.name and "hung" in one.what]
    assert sum(one.n for one in hung) >= 1
    assert all(1.0 < one.took / one.n / 1e6 < 10.0 for one in hung)


def test_an_async_job_that_hangs_is_ended_alone(worker):
    beside = hangs.neighbour.submit(3.0)
    job = hangs.awaits_for_ever.submit()
    assert "showed no sign of life" in str(failed(job))
    assert "nothing_comes" in job.info().failure.traceback
    assert beside.result(timeout="20s") == 3.0
    assert beside.info().attempt == 1


# -- in threads --------------------------------------------------------------------------------------------------------


def test_in_threads_too_only_jobs_that_hang_are_ended(tmp_path):
    app, gate = Daybreak(f"sqlite:///{tmp_path}/jobs.db"), threading.Event()

    @app.task(retry=1, hang="1s")
    def simulates() -> str:
        subprocess.run(hangs.computing(2.5), check=True)
        return "done"

    @app.task(retry=1, hang="1s")
    def computes_in_a_thread() -> str:
        thread = threading.Thread(target=hangs.computes, args=(2.5,))
        thread.start()
        thread.join()
        return "done"

    @app.task(retry=1, hang="1s")
    def prints() -> str:
        return hangs.prints(5)

    @app.task(retry=1, hang="1s")
    def hangs_here() -> None:
        gate.wait()

    with app, app.worker(processes=3, isolation="thread", grace="100ms"):
        jobs = [task.submit() for task in (simulates, computes_in_a_thread, prints)]
        assert [job.result(timeout="20s") for job in jobs] == ["done"] * 3
        stuck = hangs_here.submit()
        assert "showed no sign of life" in str(failed(stuck))
        assert "gate.wait()" in stuck.info().failure.traceback
        gate.set()


# -- what counts -------------------------------------------------------------------------------------------------------

CLOCK = Clock(RealWorld())
BEFORE = {(7, 1): ProcessActivity(5.0, 100), (8, 1): ProcessActivity(1.0, 0)}


@pytest.mark.parametrize(
    ("found", "lives"),
    [
        (BEFORE, False),
        ({(7, 1): ProcessActivity(5.0 + 0.8 * MIN_CPU, 100), (8, 1): ProcessActivity(1.0, 0)}, False),
        ({(7, 1): ProcessActivity(5.0 + 0.8 * MIN_CPU, 100), (8, 1): ProcessActivity(1.0 + 0.8 * MIN_CPU, 0)}, True),
        ({(7, 1): ProcessActivity(5.0, 101)}, True),
        ({**BEFORE, (9, 1): ProcessActivity()}, True),
        ({**BEFORE, (8, 2): ProcessActivity()}, True),
        ({(7, 1): ProcessActivity(5.0, 100)}, False),
    ],
    ids=["nothing", "a trifle of CPU", "CPU of two", "bytes", "one more", "another", "one less"],
)
def test_what_is_a_sign_of_life(found, lives):
    assert hang_detector._is_active(BEFORE, found) is lives


def test_the_activity_of_the_listener_thread_is_no_sign_of_life():
    has_spun, measured = threading.Event(), threading.Event()

    def spin():
        while time.thread_time() < 4 * MIN_CPU:
            pass
        has_spun.set()
        measured.wait()

    spins = threading.Thread(target=spin)
    spins.start()
    has_spun.wait()
    child = object.__new__(ChildProcess)
    child._process, child.listener = SimpleNamespace(pid=os.getpid()), spins.native_id
    without = _cpu(child)
    child.listener = None
    assert _cpu(child) - without > MIN_CPU
    measured.set()
    spins.join()


def _cpu(child):
    found = child.activity(ProcessScan(), {}, thorough=False)
    return next(activity.cpu for (pid, _), activity in found.items() if pid == os.getpid())


# -- how it is looked --------------------------------------------------------------------------------------------------


class Still:
    """The handle of a child that does nothing and does not answer. It records the scans and counts the stacks."""

    def __init__(self, jobs):
        self.slot_table, self.listener = SlotTable(jobs), None
        self.scans, self.stacks = [], 0
        self.answers = threading.Event()

    def activity(self, scan, known, *, thorough):
        self.scans.append((scan, threading.current_thread()))
        return {(7, 1): ProcessActivity()}

    def stack(self):
        self.stacks += 1
        self.answers.wait(10)
        return "here"


def still(jobs=1, hang=60.0):
    child = Child(Still(jobs), jobs, SimpleNamespace(), CLOCK)
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    for seq in range(1, jobs + 1):
        spec = JobSpec(id=str(seq), task="t", options=Options(hang=timedelta(seconds=hang)))
        lease = Lease(
            seq=seq, spec=spec, fence=1, attempt=1, priority=5, worker="w", until=noon,
            lease_for=timedelta(seconds=7), started_at=noon, created_at=noon,
        )  # fmt: skip
        child.held[seq] = HeldLease(lease, None)
        child.handle.slot_table.begin(seq)
    return child


async def seen(found):
    while found._scan is not None and not found._scan.done():  # noqa: ASYNC110 - a thread does not tell
        await asyncio.sleep(0.001)


async def test_children_are_scanned_together_in_a_thread_ten_times_per_hang_period():
    children, found = [still(), still()], HangDetector(CLOCK, is_async=False, end=lambda *_: None)
    begun = time.monotonic()
    for tenths in range(200):
        found.check(children, begun + tenths / 10)
        await seen(found)
    one, other = (child.handle.scans for child in children)
    assert len(one) == len(other) == 4, "at 0, 6, 12 and 18 seconds"
    assert all(mine[0] is its[0] for mine, its in zip(one, other, strict=True))
    assert threading.current_thread() not in {thread for _, thread in one + other}


async def test_a_suspension_does_not_count_for_a_job_without_a_sign_of_life_so_far():
    child, ended = still(hang=3.0), []
    found = HangDetector(CLOCK, is_async=True, end=lambda _, held, __: ended.append(held))
    child.handle.answers.set()
    begun = child.running()[1]
    child.extend_deadlines(100.0)
    found.check([child], begun + 102.9)
    assert not found._ending
    found.check([child], begun + 103.1)
    assert found._ending
    await asyncio.gather(*found._ending.values())
    assert not ended, "it is not so late yet"


@pytest.mark.parametrize(("share", "asked"), [(0.0, True), (0.9, False)], ids=["idle", "in line for a core"])
async def test_time_spent_waiting_for_a_core_is_not_silence(share, asked):
    child = still(hang=3.0)
    child.handle.answers.set()
    found = HangDetector(CLOCK, is_async=False, end=lambda *_: None)
    begun = child.running()[1]
    looks = iter(range(1000))
    child.handle.activity = lambda *_, **__: {(7, 1): ProcessActivity(waited={7: share * next(looks)})}
    for seconds in range(12):
        found._scanned_at = -1e9
        found.check([child], begun + seconds)
        await seen(found)
        _, what = found._scan.result()
        found._scan = Future()
        found._scan.set_result((begun + seconds, what))
        found.check([child], begun + seconds)
    assert bool(found._ending) is asked
    await asyncio.gather(*found._ending.values())


IN_A_THREAD = """
import threading, time
def computes():
    end = time.monotonic() + 1.5
    while time.monotonic() < end: pass
thread = threading.Thread(target=computes)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    "computing",
    [hangs.computing(1.5), [sys.executable, "-c", IN_A_THREAD]],
    ids=["first thread", "another"],
)
def test_waiting_for_a_core_is_measured(computing):
    """Two processes compute on one core: each waits for it half of the time."""
    both = [subprocess.Popen(computing) for _ in range(2)]
    for one in both:
        os.sched_setaffinity(one.pid, {min(os.sched_getaffinity(0))})
    time.sleep(0.3)
    before, now = {}, {}
    for known in (before, now):
        for one in both:
            known.update(ProcessScan().family(one.pid, {}))
        time.sleep(0.7)
    assert hang_detector._waited_for_core(before, now) > 0.1
    assert [one.wait() for one in both] == [0, 0]


@pytest.mark.parametrize(
    ("before", "now", "seconds"),
    [
        ({1: 5.0, 2: 1.0}, {1: 5.5, 2: 3.0}, 2.0),
        ({1: 300.0}, {}, 0.0),
        ({}, {1: 300.0}, 0.0),
    ],
    ids=["the longest", "not read now", "not read before"],
)
def test_only_threads_seen_in_both_scans_count_as_waiting_for_a_core(before, now, seconds):
    assert (
        hang_detector._waited_for_core({(7, 1): ProcessActivity(waited=before)}, {(7, 1): ProcessActivity(waited=now)})
        == seconds
    )


def test_no_job_is_excused_beyond_the_time_of_the_scan():
    """If the supervisor was suspended too, the pool has corrected for that time already."""
    [job] = hang_detector._watched_jobs(still(hang=3.0))
    now = job.since + 10
    hang_detector._excuse([job], 50.0, at=now)
    assert job.held.alive_at == now
    hang_detector._excuse([job], 50.0, at=now - 2)
    assert job.held.alive_at == now


async def test_jobs_that_hang_are_ended_in_a_task_and_one_signal_serves_all_of_a_child(monkeypatch):
    monkeypatch.setattr(hang_detector, "STACK_TIMEOUT", 0.01)
    child, other, ended = still(jobs=30, hang=0.0), still(hang=0.0), []
    found = HangDetector(CLOCK, is_async=True, end=lambda _, held, __: ended.append(held))
    other.handle.answers.set()
    for _ in range(100):
        found.check([child, other], time.monotonic() + 1)
        await asyncio.sleep(0.001)
        if other.held[1] in ended:
            break
    assert ended == [other.held[1]], "it does not wait for the other child, which does not answer"
    child.handle.answers.set()
    await asyncio.gather(*found._ending.values())
    assert [held for held in ended if held is not other.held[1]] == list(child.held.values())
    assert child.handle.stacks == 1
    assert {held.stack for held in ended} == {"here"}


def test_a_killed_worker_leaves_no_files(stage, tmp_path):
    place = tmp_path / "temporary"
    place.mkdir()
    with stage.process("--processes", "2", TMPDIR=str(place)) as worker:
        worker.wait_ready(stage.app)
        worker.kill()
        assert [one.name for one in place.iterdir() if one.name.startswith("daybreak")] == []

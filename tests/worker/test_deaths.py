"""Processes die: running jobs run again, jobs that had not started are not charged, and only the cause fails."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
from worker_processes import is_alive, read_lines, until
from worker_tasks import (
    adie,
    afork_and_come_back,
    anap,
    anap_once,
    app,
    await_file,
    await_file_and_stumble,
    compute_for_ever,
    count_on,
    die,
    die_at_first,
    exit_hard,
    exit_in_part,
    fork_and_come_back,
    kill_the_worker,
    nap,
    noop,
    wait_for_file,
)

from daybreak import JobFailed, State


def kinds(job):
    return [event.kind for event in job.history()]


def tries(job):
    return read_lines(job=job.id, word="began")


# -- a child dies ------------------------------------------------------------------------------------------------------


def test_a_job_that_kills_its_child_three_times_fails_with_its_history_while_others_complete(stage):
    with app.worker(processes=2, lease_for="1s"):
        others = [nap.submit(0.05) for _ in range(20)]
        killer = die.submit()
        more = [nap.submit(0.05) for _ in range(20)]
        with pytest.raises(JobFailed) as failed:
            killer.result(timeout="30s")
        for job in (*others, *more):
            assert job.wait(timeout="30s").state is State.COMPLETED
            assert job.info().attempt == 1
    assert failed.value.reason == "lost"
    assert (
        "its process was ended by SIGKILL; the job crashed 3 times, the last time while it ran alone"
        in failed.value.error
    )
    assert len(tries(killer)) == 3
    assert killer.info().lost == 3
    assert kinds(killer) == ["submitted", "started", "retrying", "started", "retrying", "started", "failed"]


def test_a_job_with_one_attempt_that_ends_its_process_fails(stage):
    with app.worker(processes=1):
        job = exit_hard.submit()
        with pytest.raises(
            JobFailed, match="exit code 7; the job crashed once while it ran alone, on its last attempt"
        ):
            job.result(timeout="30s")
    assert len(tries(job)) == 1


def test_of_many_async_jobs_in_a_child_that_dies_only_the_cause_fails(stage, began):
    with app.worker(processes=1, lease_for="1s"):
        others = [anap.submit(0.6), anap_once.submit(0.6), anap_once.submit(0.6)]
        for job in others:
            began(job)
        killer = adie.submit()
        with pytest.raises(JobFailed) as failed:
            killer.result(timeout="60s")
        assert failed.value.reason == "lost"
        for job in others:
            assert job.result(timeout="60s") == 0.6
            assert len(tries(job)) == 2


def test_a_job_whose_subtask_calls_sys_exit_is_the_only_one_that_fails(stage, began):
    with app.worker(processes=1, lease_for="1s"):
        others = [anap_once.submit(0.6) for _ in range(4)]
        for job in others:
            began(job)
        killer = exit_in_part.submit()
        with pytest.raises(JobFailed) as failed:
            killer.result(timeout="60s")
        assert failed.value.reason == "lost"
        for job in others:
            assert job.result(timeout="60s") == 0.6


@pytest.mark.parametrize(("how", "code"), [("returns", 0), ("exits", 7), ("raises", 1)])
@pytest.mark.parametrize("task", [fork_and_come_back, afork_and_come_back], ids=["sync", "async"])
def test_a_process_that_a_task_forked_ends_when_the_task_function_returns(stage, task, how, code):
    """It runs no waiting work, reports nothing, and removes nothing."""
    with app.worker(processes=1, lease_for="1s"):
        job = task.submit(how)
        others = [nap.submit(0.0) for _ in range(30)]
        assert job.result(timeout="30s") == code
        for other in others:
            other.result(timeout="30s")
            assert len(tries(other)) == 1
        [clone] = read_lines(job=job.id, word="cloned")
        until(lambda: not is_alive(clone["pid"]), "the forked process is gone")
        assert job.info().attempt == 1


@pytest.fixture
def all_at_once():
    """Jobs that are submitted inside the block become due after it, all at the same time."""

    @contextlib.contextmanager
    def held_back():
        app.queue("default").pause()
        yield
        app.queue("default").resume()

    return held_back


def test_jobs_that_a_dead_child_had_not_started_are_not_charged(stage, all_at_once):
    """The child holds short jobs ahead, behind the job that kills it."""
    with app.worker(processes=1):
        noop.map(range(1500), timeout="60s")
        with all_at_once():
            killer = die_at_first.submit()
            behind = noop.submit_many([{"n": n} for n in range(300)])
        assert killer.result(timeout="60s") == 2
        for job in behind:
            assert job.wait(timeout="60s").attempt == 1
            assert "retrying" not in kinds(job)
        assert any("released" in kinds(job) for job in behind), "it held nothing ahead: the test showed nothing"


def test_a_job_that_ended_before_its_child_died_is_not_charged(stage, all_at_once):
    """The job that kills the child is among short jobs: jobs that ended before it may run again, but are not
    charged."""
    with app.worker(processes=1):
        noop.map(range(1500), timeout="60s")
        with all_at_once():
            before = noop.submit_many([{"n": n} for n in range(300)])
            killer = die_at_first.submit()
        assert killer.result(timeout="60s") == 2
        for job in before:
            assert job.wait(timeout="60s").attempt == 1
            assert job.info().lost == 0


def test_a_suspect_runs_soon_although_other_work_waits(stage):
    """It needs a child of its own, and gets the next one that is free, although other work waits."""
    with app.worker(processes=1):
        suspect = die_at_first.using(priority="critical").submit()
        crowd = nap.submit_many([{"seconds": 0.05} for _ in range(200)])
        assert suspect.result(timeout="60s") == 2
        left = sum(job.state() is not State.COMPLETED for job in crowd)
        assert left > 100, f"it waited until {200 - left} others had run"
        assert len(suspect.history()) < 12, "it was taken and handed back again and again"


# -- the supervisor dies -----------------------------------------------------------------------------------------------


def test_the_jobs_of_a_killed_worker_run_again_side_by_side(stage, began):
    gate = stage.file("gate")
    jobs = [task.submit(str(gate)) for task in (wait_for_file, await_file) for _ in range(3)]
    with stage.process("--processes", "3") as first:
        for job in jobs:
            began(job)
        pids = first.children
        first.kill()
        until(lambda: not any(map(is_alive, pids)), "its children are gone", within=2)
    with stage.process("--processes", "3") as second:
        until(lambda: all(len(tries(job)) == 2 for job in jobs), "all of them run again, and none has ended")
        gate.touch()
        for job in jobs:
            job.result(timeout="30s")
            assert (job.info().attempt, job.info().lost) == (2, 1)
        assert second.stop() == 0


def test_three_deaths_of_workers_and_an_error_fail_no_job_and_every_attempt_is_one_that_started(stage, began):
    gate = stage.file("gate")
    jobs = [await_file_and_stumble.submit(str(gate)) for _ in range(4)]
    for death in (1, 2, 3):
        with stage.process("--processes", "1") as worker:
            for job in jobs:
                began(job, times=death)
            worker.kill()
    for tried, alone in enumerate((False, False, True)):  # after two deaths each job runs alone in a child
        pids = {tries(job)[tried]["pid"] for job in jobs}
        assert len(pids) == (len(jobs) if alone else 1)
    gate.touch()
    with stage.process("--processes", "1") as worker:
        for job in jobs:
            assert job.result(timeout="60s") == str(gate)
            assert (job.info().attempt, job.info().lost, len(tries(job))) == (5, 3, 5)
        assert worker.stop() == 0


def test_a_job_that_kills_its_worker_fails_once_it_was_on_probation(stage, began):
    gate, go = stage.file("gate"), stage.file("go")
    killer = kill_the_worker.submit(str(go))
    others = [await_file.submit(str(gate)) for _ in range(3)]
    with stage.process("--processes", "1") as first:
        for job in (killer, *others):
            began(job)
        go.touch()
        first.wait()
    with stage.process("--processes", "1") as second:
        second.wait()
    with stage.process("--processes", "1") as third:
        with pytest.raises(JobFailed) as failed:
            killer.result(timeout="30s")
        assert failed.value.reason == "lost"
        assert "the job crashed 2 times, the last time while it ran alone" in failed.value.error
        gate.touch()
        for job in others:
            assert job.result(timeout="30s") == str(gate)
            assert job.info().attempt == len(tries(job))
        assert third.stop() == 0


def test_state_survives_the_death_of_the_whole_worker(stage, began):
    job = count_on.submit(10)
    with stage.process("--processes", "1") as first:
        began(job, word="half way")
        first.kill()
    with stage.process("--processes", "1") as second:
        assert job.result(timeout="30s") == [5, 42, 2]
        assert second.stop() == 0
    assert [line["n"] for line in read_lines(job=job.id, word="counted")] == list(range(10))


@pytest.mark.parametrize("task", [compute_for_ever, nap], ids=["C that holds the GIL", "sleep"])
def test_no_child_is_left_two_seconds_after_its_supervisor_was_killed(stage, began, task):
    job = task.submit() if task is compute_for_ever else task.submit(3600.0)
    async_job = anap.submit(3600.0)
    with stage.process("--processes", "2") as worker:
        pid = began(job)["pid"]
        began(async_job)
        pids = worker.children
        assert pid in pids
        worker.kill()
        deadline = time.monotonic() + 2
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [pid for pid in pids if is_alive(pid)]
        for one in left:
            os.kill(one, signal.SIGKILL)
    assert not left

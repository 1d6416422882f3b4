"""A time limit ends a job, whatever the job does, and jobs beside it are not charged."""

from __future__ import annotations

import pytest
from worker_processes import is_alive, until
from worker_tasks import (
    anap,
    anap_in_time,
    app,
    asleep_on,
    backtrack,
    block_a_while,
    block_the_loop,
    nap,
    sleep_on,
    spin,
    start_apart,
    stumble_out,
    stumble_when_held,
    swallow,
)

from daybreak import JobFailed, State


@pytest.fixture(scope="module")
def worker(shared_stage):
    with app.worker(lease_for="1s", processes=2) as worker:
        yield worker


def kinds(job):
    return [event.kind for event in job.history()]


@pytest.mark.parametrize("task", [spin, sleep_on, backtrack], ids=["busy loop", "sleep in C", "C that holds the GIL"])
def test_the_time_limit_of_a_sync_task_ends_its_process(worker, began, task):
    job = task.submit()
    pid = began(job)["pid"]
    with pytest.raises(JobFailed, match="timeout") as failed:
        job.result(timeout="10s")
    assert failed.value.reason == "timeout"
    assert "ran longer than its limit of 0.4 s (written)" in str(failed.value)
    until(lambda: not is_alive(pid), "its process is gone")


@pytest.mark.parametrize("task", [swallow, block_the_loop], ids=["swallows cancellation", "blocks the loop"])
def test_the_time_limit_of_an_async_task_ends_its_process_and_the_other_jobs_are_handed_back(worker, began, task):
    others = [anap.submit(1.0) for _ in range(3)]
    for other in others:
        began(other)
    job = task.submit()
    pid = began(job)["pid"]
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="10s")
    until(lambda: not is_alive(pid), "its process is gone")
    for other in others:
        assert other.result(timeout="10s") == 1.0
        assert other.info().attempt == 1
        assert "retrying" not in kinds(other)
    assert others[0].info().lost == 0


def test_an_async_task_that_can_be_cancelled_at_its_limit_leaves_its_child_alive(worker, began):
    other = anap.submit(1.5)
    pid = began(other)["pid"]
    job = asleep_on.submit()
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="10s")
    assert other.result(timeout="10s") == 1.5
    assert began(other)["pid"] == pid
    assert is_alive(pid)


def test_work_waiting_behind_a_killed_sync_task_is_not_charged(worker, began):
    jobs = [spin.submit() for _ in range(2)]
    behind = [nap.submit(0.0) for _ in range(5)]
    for job in jobs:
        with pytest.raises(JobFailed, match="timeout"):
            job.result(timeout="10s")
    for job in behind:
        job.result(timeout="10s")
        assert job.info().attempt == 1


def test_a_job_that_could_not_end_in_time_because_another_blocked_the_loop_is_not_blamed(worker, began):
    other = anap_in_time.submit(0.6)
    began(other)
    blocker = block_a_while.submit(0.1, 5.0)
    began(blocker)
    assert other.result(timeout="15s") == 0.6
    assert other.info().timeouts == 0
    blocker.cancel()


@pytest.mark.parametrize("task", [block_a_while, block_the_loop], ids=["has no limit", "has a limit"])
def test_of_many_jobs_that_could_not_end_in_time_none_is_blamed(worker, began, task):
    """All were asked to stop while the loop was blocked: only the job that blocked it is to blame."""
    others = [anap_in_time.submit(0.6) for _ in range(5)]
    for other in others:
        began(other)
    blocker = task.submit(0.1, 5.0) if task is block_a_while else task.submit()
    began(blocker)
    for other in others:
        assert other.result(timeout="30s") == 0.6
        assert (other.info().attempt, other.info().timeouts) == (1, 0)
    if task is block_the_loop:
        with pytest.raises(JobFailed, match="timeout"):
            blocker.result(timeout="30s")
    blocker.cancel()


def test_a_job_that_fails_while_it_times_out_counts_as_timed_out(worker):
    job = stumble_out.submit()
    with pytest.raises(JobFailed, match="ran longer than its limit") as failed:
        job.result(timeout="30s")
    assert (failed.value.reason, failed.value.attempt) == ("timeout", 3)
    assert "the door was shut" in failed.value.traceback


def test_a_job_that_fails_while_it_is_suspended_counts_as_suspended(worker, began):
    job = stumble_when_held.submit()
    began(job)
    job.suspend()
    until(lambda: job.info().state is State.SUSPENDED, "it is held")
    assert (job.info().attempt, job.info().note) == (0, "ValueError: the door was shut")
    job.cancel()


def test_a_process_in_its_own_session_ends_with_the_task_that_started_it(worker, began):
    job = start_apart.submit()
    program = began(job)["program"]
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="30s")
    until(lambda: not is_alive(program), "what it started is gone")

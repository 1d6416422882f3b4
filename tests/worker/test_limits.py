"""A time limit ends the work itself, whatever it does; who merely stood beside it pays nothing."""

from __future__ import annotations

import pytest
from worker_deeds import (
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
    swallow,
)
from worker_hand import is_alive, until

from daybreak import JobFailed


@pytest.fixture(scope="module")
def worker(shared_stage):
    with app.worker(lease_for="1s", processes=2) as worker:
        yield worker


def kinds(job):
    return [event.kind for event in job.history()]


@pytest.mark.parametrize("task", [spin, sleep_on, backtrack], ids=["busy loop", "sleep in C", "C that holds the GIL"])
def test_the_limit_of_a_sync_task_ends_its_process(worker, began, task):
    job = task.submit()
    pid = began(job)["pid"]
    with pytest.raises(JobFailed, match="timeout") as failed:
        job.result(timeout="10s")
    assert failed.value.reason == "timeout"
    assert "ran for 0.4 s, longer than it may" in str(failed.value)
    until(lambda: not is_alive(pid), "its process is gone")


@pytest.mark.parametrize("task", [swallow, block_the_loop], ids=["swallows cancellation", "blocks the loop"])
def test_the_limit_of_an_async_task_ends_its_process_and_innocents_are_handed_back(worker, began, task):
    innocents = [anap.submit(1.0) for _ in range(3)]
    for innocent in innocents:
        began(innocent)
    job = task.submit()
    pid = began(job)["pid"]
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="10s")
    until(lambda: not is_alive(pid), "its process is gone")
    for innocent in innocents:
        assert innocent.result(timeout="10s") == 1.0
        assert innocent.info().attempt == 1
        assert "retrying" not in kinds(innocent)
    assert innocents[0].info().lost == 0


def test_an_async_task_that_can_be_cancelled_is_and_its_child_lives_on(worker, began):
    innocent = anap.submit(1.5)
    pid = began(innocent)["pid"]
    job = asleep_on.submit()
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout="10s")
    assert innocent.result(timeout="10s") == 1.5
    assert began(innocent)["pid"] == pid
    assert is_alive(pid)


def test_what_waits_behind_a_sync_task_that_is_ended_is_not_charged(worker, began):
    jobs = [spin.submit() for _ in range(2)]
    behind = [nap.submit(0.0) for _ in range(5)]
    for job in jobs:
        with pytest.raises(JobFailed, match="timeout"):
            job.result(timeout="10s")
    for job in behind:
        job.result(timeout="10s")
        assert job.info().attempt == 1


def test_who_could_not_end_in_time_because_another_blocked_the_loop_is_not_blamed(worker, began):
    innocent = anap_in_time.submit(0.6)
    began(innocent)
    blocker = block_a_while.submit(0.1, 5.0)
    began(blocker)
    assert innocent.result(timeout="15s") == 0.6
    assert innocent.info().timeouts == 0
    blocker.cancel()

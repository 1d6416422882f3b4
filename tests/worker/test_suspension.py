"""Time during which processes could not act does not count against jobs: a held GIL, stopped processes, sleep."""

from __future__ import annotations

import os
import signal
import time

import pytest
from worker_processes import read_lines, suspend, thaw, until
from worker_tasks import anap, app, atick, hold_the_gil, nap, noop, tick

from daybreak import State

LEASE = 1.0


def test_a_job_that_holds_the_gil_for_three_leases_runs_once(stage):
    job = hold_the_gil.submit(3.3 * LEASE)
    with stage.process("--processes", "1") as first, stage.process("--processes", "1", "--name", "other") as second:
        assert job.result(timeout="60s") > 0
        assert first.stop() == second.stop() == 0
    assert len(read_lines(job=job.id, word="began")) == 1
    assert job.info().attempt == 1
    assert [event.kind for event in job.history()] == ["submitted", "started", "completed"]


def test_workers_suspended_for_ten_leases_continue_without_loss(stage, began):
    """All processes of all workers are stopped, as when the machine sleeps, whatever each of them is doing. The worker
    that holds nothing continues first."""
    jobs = [nap.submit(2.0), anap.submit(2.0)]
    with stage.process("--processes", "2") as worker, stage.process("--processes", "1", "--name", "idle") as idle:
        worker.wait_ready(app)
        idle.wait_ready(app)
        for job in jobs:
            began(job)
        stopped = [idle.pid, worker.pid, *idle.children, *worker.children]
        suspend(stopped)
        frozen_at = time.monotonic()
        until(lambda: time.monotonic() - frozen_at > 10 * LEASE, "ten leases have passed")
        thaw(stopped)
        for job in jobs:
            assert job.result(timeout="30s") == 2.0
            assert job.info().attempt == 1
            assert len(read_lines(job=job.id, word="began")) == 1
            assert [event.kind for event in job.history()] == ["submitted", "started", "completed"]
        assert noop.submit(1).result(timeout="20s") == 1
        assert worker.stop() == idle.stop() == 0


@pytest.mark.parametrize("task", [tick, atick], ids=["sync", "async"])
def test_time_during_which_the_worker_was_suspended_does_not_count_towards_limits(stage, began, task):
    """The job needs half of its limit; the rest is for a machine under load."""
    job = task.submit(100)
    with stage.process("--processes", "1") as worker:
        began(job)
        stopped = worker.freeze()
        frozen_at = time.monotonic()
        until(lambda: time.monotonic() - frozen_at > 4, "longer than its limit")
        thaw(stopped)
        job.wait(timeout="30s")
        assert worker.stop() == 0
    assert job.state() is State.COMPLETED
    assert job.info().timeouts == 0


def test_a_stopped_worker_loses_its_job_to_another_and_its_late_outcome_is_refused(stage, began):
    job = nap.submit(2.0)
    with stage.process("--processes", "1") as first:
        began(job)
        stopped = first.freeze()
        with stage.process("--processes", "1", "--name", "second") as second:
            began(job, times=2)
            thaw(stopped)
            assert job.result(timeout="30s") == 2.0
            until(lambda: "lost its lease (fence 1)" in first.said, "the first says so")
            # The worker continues with other work.
            assert second.stop() == 0
            assert noop.submit(4).result(timeout="30s") == 4
            assert first.stop() == 0
    kinds = [event.kind for event in job.history()]
    assert kinds.count("completed") == 1
    assert kinds == ["submitted", "started", "lease_expired", "retrying", "started", "completed"]
    assert job.info().attempt == 2


def test_a_suspended_child_does_not_count_as_dead(stage, began):
    job = nap.submit(1.0)
    with stage.process("--processes", "1") as worker:
        pid = began(job)["pid"]
        os.kill(pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        until(lambda: time.monotonic() - frozen_at > 3 * LEASE, "three leases have passed")
        os.kill(pid, signal.SIGCONT)
        assert job.result(timeout="20s") == 1.0
        assert job.info().attempt == 1
        assert worker.stop() == 0


@pytest.mark.parametrize("task", [nap, anap], ids=["sync", "async"])
def test_a_job_claimed_again_by_the_worker_that_still_runs_it_is_told_apart_by_its_fence(stage, began, task):
    """The job was taken over while its worker was suspended, and that worker claims it again as soon as it
    continues."""
    job = task.submit(3.0)
    with stage.process("--processes", "2") as worker:
        began(job)
        stopped = worker.freeze()
        with stage.process("--processes", "1", "--name", "reaper", "--queues", "elsewhere") as reaper:
            until(lambda: job.state() is State.QUEUED, "another one took it over")
            thaw(stopped)
            began(job, times=2)
            assert job.result(timeout="30s") == 3.0
            assert [task.submit(0.0).result(timeout="30s") for _ in range(5)] == [0.0] * 5
            assert reaper.stop() == 0
        assert worker.stop() == 0
        assert "stopped: 6 completed, 0 failed" in worker.said
    second = max(line["t"] for line in read_lines(job=job.id, word="began"))
    ended = [line for line in read_lines(job=job.id, word="ended") if line["t"] > second]
    assert ended[-1]["t"] - second >= 2.9, "the outcome of the first run was not taken for that of the second"
    assert [event.kind for event in job.history()].count("completed") == 1
    assert job.info().attempt == 2

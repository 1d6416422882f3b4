"""Acceptance cases about workers that come and go: killed, stopped, lost, restarted, or not there at all."""

from __future__ import annotations

import re
import signal

import pytest
from acceptance_tasks import app, note, stumble, unheard_of, wait_for, work
from worker_processes import is_alive, read_lines, thaw, until

from daybreak import JobFailed, ResultTimeout, State


def kinds(job):
    return [event.kind for event in job.history()]


def begins(job):
    return read_lines(job=job.id, word="began")


def test_case_10_kill_9_during_a_run_runs_it_again_and_finished_ones_never(place, began):
    """Kill -9 during run: after restart task runs again, attempts = 2, finished ones never again."""
    finished = [note.submit(n=n) for n in range(5)]
    gate = place.file()
    with place.worker("--processes", "1") as first:
        for job in finished:
            job.result(timeout="30s")
        running = wait_for.submit(str(gate))
        began(running)
        first.kill()
    gate.touch()
    with place.worker("--processes", "1") as second:
        assert running.result(timeout="30s") == str(gate)
        assert running.info().attempt == 2
        assert len(begins(running)) == 2
        assert second.stop() == 0
    assert all(len(read_lines(job=job.id)) == 1 for job in finished)
    assert kinds(running) == ["submitted", "started", "lease_expired", "retrying", "started", "completed"]


def test_case_12_a_lost_lease_is_freed_and_a_late_completion_refused(place, began):
    """Lease lost: reaper frees slot, late completion with old token refused."""
    app.queue("default").set(max_running=1)
    job = work.submit(2.0)
    with place.worker("--processes", "1", "--name", "first") as first:
        began(job)
        stopped = first.freeze()
        with place.worker("--processes", "1", "--name", "second") as second:
            began(job, times=2)
            thaw(stopped)  # its time is over: it reports at once, while the second is at it
            until(lambda: "lost its lease (fence 1)" in first.said, "the late outcome was refused")
            assert job.result(timeout="30s") == 0
            assert note.submit(n=1).result(timeout="30s") == 1, "the only slot is free"
            assert first.stop() == second.stop() == 0
    assert [event.by.partition("-")[0] for event in job.history() if event.kind == "completed"] == ["second"]
    assert job.info().fence == 3, "one for each worker, one for the reaper between them"
    assert job.info().attempt == 2


def test_case_17_without_a_worker_nothing_is_lost(place, capsys):
    """No executor: nothing lost."""
    jobs = [unheard_of.submit(n) for n in range(20)]
    with pytest.raises(ResultTimeout, match="is still queued after"):
        jobs[0].result(timeout="2200ms")
    assert "no live worker knows the task 'unheard_of'; start one with: daybreak worker" in capsys.readouterr().err
    app.close()
    with place.worker("--processes", "2") as worker:
        assert [job.result(timeout="30s") for job in jobs] == list(range(20))
        assert worker.stop() == 0


def test_case_33_a_restart_keeps_priority_fifo_attempts_and_suspended(place):
    """Restart keeps priority, FIFO, attempts, suspended."""
    once = stumble.using(retry=2, priority="emergency").submit(5)
    with place.worker("--processes", "1") as first:
        until(lambda: once.state() is State.SCHEDULED, "its first attempt failed")
        first.kill()
    low = [note.using(priority="low").submit(n=n) for n in range(10, 15)]
    held = note.using(priority="critical").submit(n=1)
    held.suspend("until tomorrow")
    high = [note.using(priority="high").submit(n=n) for n in range(5)]
    app.close()  # and with it everything that this process knew
    with place.worker("--processes", "1") as second:
        low[-1].result(timeout="30s")
        with pytest.raises(JobFailed) as failed:
            once.result(timeout="30s")
        assert second.stop() == 0
    assert failed.value.attempt == 2, "the attempt before the restart counts"
    assert [line["n"] for line in read_lines(task="note")] == [*range(5), *range(10, 15)]
    assert all(job.state() is State.COMPLETED for job in high)
    assert held.state() is State.SUSPENDED
    assert held.info().note == "until tomorrow"


def test_case_35_sigterm_hands_running_jobs_back_and_charges_nothing(place, began):
    """SIGTERM: running handed back, attempt not charged."""
    gate = place.file()
    job = wait_for.submit(str(gate))
    with place.worker("--processes", "1", "--grace", "200ms") as first:
        pid = began(job)["pid"]
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        assert not is_alive(pid)
        assert re.search(r"stopping: 1 job.* for at most 0\.2 s", first.said)
    assert job.state() is State.QUEUED
    assert job.info().attempt == 0
    gate.touch()
    with place.worker("--processes", "1") as second:
        assert job.result(timeout="30s") == str(gate)
        assert second.stop() == 0
    assert job.info().attempt == 1

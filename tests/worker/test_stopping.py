"""A worker that is asked to stop lets its jobs end, hands back those that do not, and charges no attempt."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
from worker_processes import is_alive, read_lines, until
from worker_stores import meddled
from worker_tasks import anap, app, auntil_cancelled, nap, noop, stumble_when_held, wait_for_file

from daybreak import State
from daybreak.worker.launcher import ChildProcess

HEARD = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", HEARD, ids=lambda number: number.name)
def test_the_first_signal_lets_running_jobs_end_and_logs_it(stage, began, number):
    gate = stage.file("gate")
    running = [wait_for_file.submit(str(gate)) for _ in range(2)]
    waiting = [wait_for_file.submit(str(gate)) for _ in range(3)]
    with stage.process("--processes", "2", "--grace", "20s") as worker:
        for job in running:
            began(job)
        worker.signal(number)
        until(lambda: "stopping" in worker.said, "it says so")
        assert "stopping: 2 jobs may run on for at most 20 s" in worker.said
        assert worker.returned is None
        gate.touch()
        assert worker.wait() == 0
        for job in running:
            assert job.state() is State.COMPLETED
        for job in waiting:
            assert job.state() is State.QUEUED
            assert job.info().attempt == 0
            assert not read_lines(job=job.id)
        assert "stopped: 2 completed, 0 failed" in worker.said


def test_jobs_that_do_not_end_within_the_grace_time_are_handed_back_uncharged(stage, began):
    deaf = nap.submit(3600.0)
    polite = auntil_cancelled.submit()
    clumsy = stumble_when_held.submit()
    with stage.process("--processes", "1", "--grace", "300ms") as worker:
        pid = began(deaf)["pid"]
        began(polite)
        began(clumsy)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert not is_alive(pid)
    for job in (deaf, polite, clumsy):
        assert job.state() is State.QUEUED
        assert job.info().attempt == 0
        assert [event.kind for event in job.history()] == ["submitted", "started", "released"]
    assert read_lines(job=polite.id, word="heard"), "an async task is cancelled before its child is killed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_the_second_signal_stops_at_once_and_hands_back(stage, began, number):
    jobs = [nap.submit(3600.0), anap.submit(3600.0)]
    with stage.process("--processes", "1", "--grace", "1h") as worker:
        for job in jobs:
            began(job)
        worker.signal(number)
        until(lambda: "stopping" in worker.said, "it heard the first")
        worker.signal(number)
        assert worker.wait() == 0  # long before the end of its grace time
    for job in jobs:
        assert job.state() is State.QUEUED
        assert job.info().attempt == 0


def test_repeated_hangups_of_a_closing_terminal_count_as_one_signal(stage, began):
    """The shell passes SIGHUP on, and the system sends it too: jobs keep their grace time."""
    gate = stage.file("gate")
    job = wait_for_file.submit(str(gate))
    with stage.process("--processes", "1", "--grace", "20s") as worker:
        began(job)
        worker.signal(signal.SIGHUP)
        until(lambda: "stopping" in worker.said, "it heard the first")
        worker.signal(signal.SIGHUP)
        time.sleep(0.3)
        assert worker.returned is None
        gate.touch()
        assert worker.wait() == 0
    assert job.state() is State.COMPLETED


def test_an_ignored_hangup_stays_ignored(stage, began):
    """As under nohup."""
    gate = stage.file("gate")
    job = wait_for_file.submit(str(gate))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        worker = stage.process("--processes", "1")
    finally:
        signal.signal(signal.SIGHUP, before)
    with worker:
        began(job)
        for pid in (worker.pid, *worker.children):
            os.kill(pid, signal.SIGHUP)
        gate.touch()
        until(lambda: job.state() is State.COMPLETED, "it works on")
        assert "stopping" not in worker.said
        assert worker.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_every_process_of_the_worker_is_one_signal(stage, began, number):
    """As Ctrl-C in a terminal or a service manager sends it."""
    gate = stage.file("gate")
    job = wait_for_file.submit(str(gate))
    with stage.process("--processes", "1", "--grace", "20s") as worker:
        pid = began(job)["pid"]
        for one in (worker.pid, *worker.children):
            os.kill(one, number)
        until(lambda: "stopping" in worker.said, "it heard")
        assert is_alive(pid)
        gate.touch()
        assert worker.wait() == 0
    assert job.state() is State.COMPLETED
    assert job.info().attempt == 1


def test_a_worker_can_be_stopped_while_it_starts(stage):
    for wait in (0.0, 0.3, 0.6, 0.9):
        with stage.process("--processes", "2") as worker:
            until(lambda: is_alive(worker.pid), "it is there")
            time.sleep(wait)
            worker.signal(signal.SIGTERM)
            assert worker.wait() in {0, -signal.SIGTERM}, worker.said


def test_jobs_claimed_while_the_worker_is_stopping_are_handed_back(stage):
    claimed = threading.Event()

    async def linger(name, answer):
        if name == "exchange" and answer.leases and not claimed.is_set():
            claimed.set()
            await asyncio.sleep(0.5)

    with meddled(app, stage.folder / "jobs.db") as store:
        with app.worker(processes=1):
            store.after = linger
            jobs = noop.submit_many([{"n": n} for n in range(20)])
            assert claimed.wait(10)
        states = {job.state() for job in jobs}
        assert State.RUNNING not in states, "no worker runs it, and none may before its lease expires"
        assert all(job.info().attempt == 0 for job in jobs if job.state() is State.QUEUED)


def test_a_child_that_exits_slowly_costs_no_attempt(stage, began, monkeypatch):
    """A large process takes a while to exit after its connection has closed."""
    clean_up = ChildProcess.clean_up

    def slowly(child):
        time.sleep(0.3)
        clean_up(child)

    monkeypatch.setattr(ChildProcess, "clean_up", slowly)
    with app.worker(processes=2, grace="100ms"):
        jobs = [nap.submit(3600.0) for _ in range(2)]
        for job in jobs:
            began(job)
    assert [job.state() for job in jobs] == [State.QUEUED] * 2
    assert [job.info().attempt for job in jobs] == [0, 0]


def test_stopping_a_worker_under_load_charges_no_attempt(stage):
    jobs = noop.submit_many([{"n": n} for n in range(3000)])
    with stage.process("--processes", "2") as worker:
        worker.wait_ready(app)
        until(lambda: jobs[200].state() is State.COMPLETED, "it is at work")
        assert worker.stop() == 0
    states = [job.info() for job in jobs]
    assert {job.state for job in states} <= {State.COMPLETED, State.QUEUED, State.RUNNING}
    assert all(job.attempt == 0 for job in states if job.state is State.QUEUED)
    assert all(job.attempt == 1 for job in states if job.state is State.COMPLETED)

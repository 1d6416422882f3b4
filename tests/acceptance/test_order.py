"""Acceptance cases about order: priority, first in first out, re-prioritising, aging, pausing, full queues."""

from __future__ import annotations

import time

import pytest
from acceptance_tasks import app, note, wait_for, work
from worker_processes import ask, read_lines, until

from daybreak import Priority, QueueFull, State
from daybreak.core.errors import BadInput


@pytest.fixture(scope="module")
def worker(shared_place):
    """One worker with one process, for the queues of all these cases: each case has its own queue."""
    queues = [f"case-{n:02}" for n in (1, 2, 3, 4, 18, 20)] + ["case-03-names", "case-20-strict"]
    with app.worker(lease_for="1s", processes=1, queues=queues) as worker:
        yield worker


def ran(queue: str) -> list[int]:
    return [line["n"] for line in read_lines(queue=queue) if line["word"] in {"ran", "began"}]


def test_case_01_critical_behind_1000_low_starts_after_at_most_the_running_batch(worker):
    """CRITICAL submitted behind 1000 LOW starts after at most the running batch."""
    low = work.using(queue="case-01", priority="low").submit_many([{"seconds": 0.004, "n": n} for n in range(1000)])
    until(lambda: len(ran("case-01")) > 30, "some of them ran")
    before = len(ran("case-01"))
    urgent = work.using(queue="case-01", priority="critical").submit(0.0, n=-1)
    urgent.result(timeout="20s")
    order = ran("case-01")
    # What ran while it was submitted, what was in hand when it was, and itself.
    took = order.index(-1) - before
    assert took <= 15, f"{took} jobs began before it"
    assert low[-1].state() is State.QUEUED
    assert ask(app, lambda client: client.amend_all("cancel", queue="case-01")) > 500


def test_case_02_fifo_inside_a_level_for_10000_same_instant_submissions(worker):
    """FIFO inside a level for 10 000 same-instant submissions."""
    jobs = note.using(queue="case-02").submit_many([{"n": n} for n in range(10_000)])
    jobs[-1].result(timeout="60s")
    until(lambda: ask(app, lambda client: client.count(queue="case-02"))[State.COMPLETED] == 10_000, "all ran")
    assert ran("case-02") == list(range(10_000))


def test_case_03_priorities_map_and_order_and_a_bad_one_is_rejected(worker):
    """Ints 1-10, four names, five+BACKGROUND, five+EMERGENCY map and order as in 3.2; bad priority rejected."""
    names = ["background", "low", "NORMAL", "High", "critical", "EMERGENCY"]
    assert [Priority[name.upper()] for name in names] == [10, 7, 5, 2, 1, 0]
    app.queue("case-03").pause()
    app.queue("case-03-names").pause()
    for n in range(10, -1, -1):
        note.using(queue="case-03", priority=n).submit(n=n)
    last = [
        note.using(queue="case-03-names", priority=name).submit(n=number)
        for number, name in zip((10, 7, 5, 2, 1, 0), names, strict=True)
    ]
    note.using(queue="case-03-names", priority=Priority.HIGH).submit(n=2)
    for bad in ("urgent", 11, -1, 2.5, None, True):
        with pytest.raises(BadInput, match="is not a priority"):
            note.using(priority=bad).submit()
    app.queue("case-03").resume()
    app.queue("case-03-names").resume()
    last[0].result(timeout="20s")
    until(lambda: len(ran("case-03")) == 11 and len(ran("case-03-names")) == 7, "all ran")
    assert ran("case-03") == list(range(11))
    assert ran("case-03-names") == [0, 1, 2, 2, 5, 7, 10]


def test_case_04_reprioritised_jobs_stand_by_their_original_time(worker, shared_place, began):
    """Reprioritise queued: order changes, place by original time inside new level; running/terminal -> False."""
    gate = shared_place.file()
    first = wait_for.using(queue="case-04", priority="emergency").submit(str(gate))
    began(first)
    jobs = [note.using(queue="case-04", priority="low").submit(n=n) for n in range(4)]
    late = note.using(queue="case-04", priority="high").submit(n=10)
    try:
        # A child that was quick so far may hold a few ahead; it gives them back when a job turns out long.
        until(lambda: all(job.state() is State.QUEUED for job in (*jobs, late)), "all wait")
        assert jobs[2].reprioritise("high").verdict == "done"
        assert jobs[1].reprioritise("high").verdict == "done"
        assert [job.position().ahead for job in (jobs[1], jobs[2], late, jobs[0], jobs[3])] == [0, 1, 2, 3, 4]
        assert first.reprioritise("low").verdict == "refused"
    finally:
        gate.touch()
    jobs[3].result(timeout="20s")
    assert [line["n"] for line in read_lines(queue="case-04", word="ran")] == [1, 2, 10, 0, 3]
    assert jobs[3].reprioritise("high").verdict == "refused"


def test_case_18_pause_stops_leases_resume_continues(worker):
    """Pause stops leases, resume continues."""
    queue = app.queue("case-18")
    assert note.using(queue="case-18").submit(n=1).result(timeout="20s") == 1
    queue.pause()
    jobs = [note.using(queue="case-18").submit(n=n) for n in (2, 3)]
    beside = note.using(queue="case-02").submit(n=-1)
    assert beside.result(timeout="20s") == -1, "other queues go on"
    assert [job.state() for job in jobs] == [State.QUEUED, State.QUEUED]
    assert ran("case-18") == [1]
    queue.resume()
    assert [job.result(timeout="20s") for job in jobs] == [2, 3]
    assert ran("case-18") == [1, 2, 3]


def test_case_19_a_full_queue_rejects(shared_place):
    """Queue full rejects; shed policy evicts lower only and reports. (Shedding is not there yet; nor is its word.)"""
    app.queue("case-19").set(capacity=3)
    submit = note.using(queue="case-19").submit
    jobs = [submit(n=n) for n in range(3)]
    with pytest.raises(QueueFull, match="is full"):
        submit(n=3)
    with pytest.raises(QueueFull, match="row 0"):
        note.using(queue="case-19", priority="emergency").submit_many([{"n": 4}])
    assert [job.state() for job in jobs] == [State.QUEUED] * 3, "nothing that was accepted is dropped"
    jobs[0].cancel()
    assert submit(n=5).state() is State.QUEUED, "there is room again"
    app.queue("case-19").set(capacity=None)


@pytest.mark.parametrize("discipline", ["aging", "fifo"])
def test_case_20_aging_lets_background_run_under_constant_high_load(worker, discipline):
    """Aging lets BACKGROUND run under constant HIGH load; off = strict."""
    queue = "case-20" if discipline == "aging" else "case-20-strict"
    app.queue(queue).set(discipline=discipline, patience="100ms")
    high = work.using(queue=queue, priority="high")
    waiting = high.submit_many([{"seconds": 0.01, "n": n} for n in range(100)])  # a second of it
    background = note.using(queue=queue, priority="background").submit(n=-1)
    deadline = time.monotonic() + (20 if discipline == "aging" else 2.5)
    while background.state() is not State.COMPLETED and time.monotonic() < deadline:
        waiting = [job for job in waiting if job.state() is not State.COMPLETED]
        waiting += high.submit_many([{"seconds": 0.01, "n": 0} for _ in range(100 - len(waiting))])
    assert waiting, "there was always urgent work"
    expected = State.COMPLETED if discipline == "aging" else State.QUEUED
    assert background.state() is expected
    ask(app, lambda client: client.amend_all("cancel", queue=queue))

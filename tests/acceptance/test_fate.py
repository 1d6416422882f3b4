"""Acceptance cases about how a job ends: retries, crashes, duplicates, cancelling, waiting, callbacks, counts."""

from __future__ import annotations

import time

import pytest
from acceptance_tasks import app, crash, fail, note, refuse, stumble, wait_for, watch_for_cancel, work
from worker_processes import ask, is_alive, read_lines, until

from daybreak import JobCancelled, JobFailed, KeyConflict, ResultTimeout, State


def kinds(job):
    return [event.kind for event in job.history()]


def begins(job):
    return read_lines(job=job.id, word="began")


@pytest.fixture(scope="module", autouse=True)
def worker(shared_place):
    with app.worker(lease_for="1s", processes=2, cancel_grace="500ms") as worker:
        yield worker


def test_case_07_transient_twice_then_success_with_growing_delays_and_nobody_else_delayed():
    """Transient error twice then success: 3 attempts, delays grow, other tasks not delayed meanwhile."""
    job = stumble.submit(2)
    waits = []
    while job.state() not in {State.COMPLETED, State.FAILED}:
        began_at = time.monotonic()
        note.submit().result(timeout="20s")
        waits.append(time.monotonic() - began_at)
    assert job.result() == 3
    assert job.info().attempt == 3
    tries = [line["t"] for line in begins(job)]
    assert len(tries) == 3
    assert 0.2 <= tries[1] - tries[0] < tries[2] - tries[1]
    assert tries[2] - tries[1] >= 0.4
    assert max(waits) < 1.0, "others ran meanwhile"
    assert kinds(job).count("retrying") == 2


def test_case_08_permanent_error_exactly_one_attempt():
    """Permanent error: exactly 1 attempt."""
    job = refuse.submit()
    with pytest.raises(JobFailed, match="this can never be") as failed:
        job.result(timeout="20s")
    assert (failed.value.reason, failed.value.attempt) == ("error", 1)
    assert len(begins(job)) == 1


def test_case_09_one_attempt_and_a_crash_ends_failed_not_for_ever():
    """max_attempts=1 and crash loop: task ends FAILED, not for ever."""
    job = crash.submit()
    with pytest.raises(JobFailed) as failed:
        job.result(timeout="20s")
    assert failed.value.reason == "lost"
    assert len(begins(job)) == 1
    assert note.submit(n=9).result(timeout="20s") == 9


def test_case_11_a_duplicate_id_is_the_same_job_and_does_nothing_after_completion():
    """Duplicate id rejected or returns the same task; redelivered after completion does nothing."""
    again = note.using(id="case-11").submit
    first = again(n=1)
    assert again(n=1) == first
    assert first.result(timeout="20s") == 1
    assert again(n=1) == first
    assert again(n=2).result(timeout="20s") == 1
    keyed = note.using(key="case-11").submit(n=3)
    assert note.using(key="case-11").submit(n=3) == keyed
    with pytest.raises(KeyConflict):
        note.using(key="case-11").submit(n=4)
    assert keyed.result(timeout="20s") == 3
    assert note.using(key="case-11").submit(n=3) == keyed
    note.submit(n=0).result(timeout="20s")  # whatever stood before it has run
    assert len(read_lines(job=first.id)) == len(read_lines(job=keyed.id)) == 1


def test_case_14_heartbeats_keep_a_long_task_single(began):
    """Heartbeat keeps a long task single: five leases long, beside reapers that look for the dead."""
    job = work.submit(5.0)
    began(job)
    with app.worker(lease_for="1s", processes=1):
        assert job.result(timeout="30s") == 0
    assert len(begins(job)) == 1
    assert kinds(job) == ["submitted", "started", "completed"]


def test_case_15_cancel_queued_never_runs_cancel_running_never_ends_completed(began):
    """Cancel queued never runs; cancel running never ends COMPLETED."""
    queued = note.using(delay="300ms").submit(n=15)
    assert queued.cancel().verdict == "done"
    running = watch_for_cancel.submit()
    began(running)
    deaf = work.submit(60.0)
    pid = began(deaf)["pid"]
    assert running.cancel().verdict == deaf.cancel().verdict == "requested"
    for job in (queued, running, deaf):
        with pytest.raises(JobCancelled):
            job.result(timeout="20s")
        assert job.state() is State.CANCELLED
    until(lambda: not is_alive(pid), "the deaf one was ended")
    watched_until = time.monotonic() + 0.5
    until(lambda: time.monotonic() > watched_until, "its time has come and gone")
    assert not read_lines(job=queued.id)
    assert not read_lines(job=deaf.id, word="ended")


def test_case_16_waiting_for_all_ends_only_when_all_are_final(shared_place):
    """wait_all true only when all terminal."""
    gate = shared_place.file()
    jobs = [note.submit(n=1), refuse.submit(), wait_for.submit(str(gate)), note.submit(n=2)]
    ended = app.as_completed(jobs, timeout="20s")
    first = {next(ended).id for _ in range(3)}
    assert first == {jobs[0].id, jobs[1].id, jobs[3].id}
    with pytest.raises(ResultTimeout):
        jobs[2].wait(timeout="300ms")
    gate.touch()
    assert next(ended) == jobs[2]
    assert list(ended) == []
    assert [job.state() for job in jobs] == [State.COMPLETED, State.FAILED, State.COMPLETED, State.COMPLETED]


def test_case_32_a_raising_callback_does_not_break_the_queue(caplog):
    """Raising callback does not break the queue."""
    told = []

    @app.on("submitted", "started", "completed", "failed")
    def broken(event):
        told.append(event.kind)
        raise RuntimeError("a callback that is broken")

    jobs = [note.submit(n=n) for n in range(5)]
    bad = refuse.submit()
    assert [job.result(timeout="20s") for job in jobs] == list(range(5))
    with pytest.raises(JobFailed):
        bad.result(timeout="20s")
    until(lambda: told.count("completed") == 5 and told.count("failed") == 1, "it was told of everything")
    until(lambda: "a callback that is broken" in caplog.text, "and what it raised was logged")
    app.hooks._hooks = []


def test_case_34_counts_include_suspended(began, shared_place):
    """Events/status counts: suspended included."""
    gate = shared_place.file()
    queue = "case-34"
    app.queue(queue).pause()
    waiting = [note.using(queue=queue).submit(n=n) for n in range(3)]
    later = note.using(queue=queue, delay="1h").submit()
    assert waiting[0].suspend("hold on").verdict == "done"
    waiting[1].cancel()
    bad = fail.submit()
    with pytest.raises(JobFailed):
        bad.result(timeout="20s")
    counts = ask(app, lambda client: client.count(queue=queue))
    assert counts == {
        **dict.fromkeys(State, 0),
        State.SUSPENDED: 1,
        State.CANCELLED: 1,
        State.QUEUED: 1,
        State.SCHEDULED: 1,
    }
    assert app.queue(queue).stats() is not None
    assert kinds(waiting[0]) == ["submitted", "suspended"]
    assert waiting[0].resume().verdict == "done"
    assert kinds(waiting[0]) == ["submitted", "suspended", "resumed"]
    assert ask(app, lambda client: client.count(queue=queue))[State.SUSPENDED] == 0
    later.cancel()
    gate.touch()

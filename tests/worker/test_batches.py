"""Batch tasks in real workers: several jobs share one call in one child, and each keeps its own outcome."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import worker_batches
from click.testing import CliRunner
from worker_batches import (
    app,
    aslow,
    asquare,
    await_for,
    briefly,
    facts,
    kill_alone,
    kill_together,
    licensed,
    patient,
    plain,
    silent,
    slow_alone,
    square,
    wait_for,
)
from worker_processes import WorkerProcess, read_lines, until

from conftest import _stage
from daybreak import JobFailed, State
from daybreak.cli.root import root


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCH_MARKS", str(tmp_path))
    yield from _stage(tmp_path, app)


def calls(word: str = "call") -> list[list[int]]:
    return [line["items"] for line in read_lines(word=word)]


def kinds(job) -> list[str]:
    return [event.kind for event in job.history()]


def ended(jobs) -> list[tuple[str, int]]:
    """The state of each job and its attempts, once all have ended."""
    for job in jobs:
        job.wait(timeout="60s")
    infos = [job.info() for job in jobs]
    return [(info.state.value, info.attempt) for info in infos]


# -- one call ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [square, asquare], ids=["sync", "async"])
def test_jobs_that_wait_run_in_one_call_with_its_events(stage, task):
    jobs = task.submit_many(range(5))
    with app.worker(processes=1):
        assert [job.result(timeout="30s") for job in jobs] == [0, 1, 4, 9, 16]
    [line] = read_lines(word="call")
    assert line["items"] == list(range(5))
    assert line["jobs"] == [job.id for job in jobs]
    assert {job.info().attempt for job in jobs} == {1}
    head, other = kinds(jobs[0]), kinds(jobs[1])
    assert head == ["submitted", "started", "batch_started", "batch_completed", "completed"]
    assert other == ["submitted", "started", "completed"]
    [found] = [one for one in app.stats().batch_calls if one.task == task.name]
    assert (found.calls, found.elements) == (1, 5)
    told = command("stats", stage).split("calls of batch tasks")[1].splitlines()
    assert told[2].split()[:4] == [task.name, "1", "5", "5.0"]


@pytest.mark.parametrize("task", [square, asquare], ids=["sync", "async"])
def test_a_poisoned_item_fails_alone_with_its_own_traceback(stage, task):
    jobs = task.using(retry=1).submit_many([*range(10, 18)])
    with app.worker(processes=1):
        assert ended(jobs) == [("failed" if n == 3 else "completed", 1) for n in range(8)]
        with pytest.raises(JobFailed, match="13 is poison") as failed:
            jobs[3].result()
    assert "worker_batches.py" in failed.value.traceback
    assert calls() == [[*range(10, 18)], [10, 11, 12, 13], [10, 11], [12, 13], [12], [13], [14, 15, 16, 17]]


def test_an_exception_in_the_results_fails_its_job_alone(stage):
    jobs = square.using(retry=1).submit_many([1, -2, 3])
    with app.worker(processes=1):
        assert ended(jobs) == [("completed", 1), ("failed", 1), ("completed", 1)]
        with pytest.raises(JobFailed, match="-2 is below 0"):
            jobs[1].result()
    assert calls() == [[1, -2, 3]]


def test_what_a_call_knows_and_says(stage):
    jobs = facts.submit_many([1, 2])
    with app.worker(processes=1):
        results = [job.result(timeout="30s") for job in jobs]
    assert results[0] == {"jobs": [job.id for job in jobs], "wrapped": [jobs[0].id], "shared": False}
    assert [(job.info().progress, job.info().message) for job in jobs] == [(0.5, "half way")] * 2
    log = jobs[0].logs().text
    assert "a call of 2" in log
    assert "printed" in log


def test_calls_of_several_keys_interleaved_are_full_and_never_mix(stage):
    jobs = licensed.submit_many([("AB"[n % 2], n) for n in range(16)])
    with app.worker(processes=2):
        assert [job.result(timeout="30s") for job in jobs] == [f"{'AB'[n % 2]}{n}" for n in range(16)]
    began = sorted(calls("began"))
    assert began == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
    lines = [line["word"] for line in read_lines() if line["word"] in ("began", "ended")]
    assert lines == ["began", "ended"] * 4, "two calls at once, and the licence has one slot"
    starts = [event.note for job in jobs for event in job.history() if event.kind == "batch_started"]
    assert starts == ["4 jobs"] * 4


# -- deaths and limits -------------------------------------------------------------------------------------------------


def test_the_death_of_a_child_charges_only_what_it_ran(stage):
    jobs = kill_alone.submit_many([10, 11, 12, 13, 14])
    with app.worker(processes=1):
        assert ended(jobs) == [("completed", 1), ("completed", 1), ("completed", 1), ("completed", 2), ("completed", 1)]
    first = calls()[: calls().index([13]) + 1]
    assert first == [[10, 11, 12, 13, 14], [10, 11], [12, 13, 14], [12], [13, 14], [13]]
    assert "lease_expired" not in kinds(jobs[4])
    assert "released" in kinds(jobs[4])


def test_jobs_that_were_in_a_call_that_killed_its_child_run_alone_next_time(stage):
    jobs = kill_together.submit_many([1, 2, 3])
    with app.worker(processes=2):
        assert ended(jobs) == [("completed", 2)] * 3
    assert calls()[0] == [1, 2, 3]
    assert sorted(calls()[1:]) == [[1], [2], [3]]


def test_a_time_limit_is_that_of_one_call_of_the_function_and_charges_only_that(stage):
    jobs = slow_alone.submit_many([10, 11, 12, 13, 14])
    with app.worker(processes=1):
        assert ended(jobs) == [("completed", 1), ("completed", 1), ("completed", 1), ("completed", 2), ("completed", 1)]
    [event] = [event for event in jobs[3].history() if event.error]
    assert "its limit of 0.5 s" in event.error


def test_an_async_call_is_cancelled_at_its_time_limit(stage):
    jobs = aslow.submit_many([1, 2])
    with app.worker():
        assert ended(jobs) == [("completed", 2)] * 2
    assert calls()[0] == [1, 2]


def test_a_call_that_hangs_is_ended_once_for_all_its_jobs(stage, caplog):
    jobs = silent.submit_many([1, 2])
    with app.worker(processes=1):
        assert ended(jobs) == [("completed", 2)] * 2
    hung = [record.getMessage() for record in caplog.records if "showed no sign of life" in record.getMessage()]
    assert len([line for line in hung if "ending it" in line]) == 1


def test_a_worker_that_is_killed_in_a_call_loses_no_job(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 3)
    with WorkerProcess(Path(worker_batches.__file__), stage.url, stage.folder, "--lease", "1s") as worker:
        until(calls, "the call has begun")
        worker.kill()
    path.touch()
    with app.worker(processes=1, lease_for="1s"):
        assert ended(jobs) == [("completed", 2)] * 3


def test_a_call_may_run_for_longer_than_its_leases(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 2)
    with app.worker(processes=1, lease_for="500ms"):
        until(calls, "the call has begun")
        time.sleep(1.5)
        path.touch()
        assert ended(jobs) == [("completed", 1)] * 2


# -- requests ----------------------------------------------------------------------------------------------------------


def test_cancelling_one_job_does_not_stop_a_call_that_others_are_in(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 3)
    with app.worker(processes=1, cancel_grace="1s"):
        until(calls, "the call has begun")
        assert jobs[1].cancel().verdict == "requested"
        time.sleep(1.5)
        path.touch()
        assert ended(jobs) == [("completed", 1), ("cancelled", 1), ("completed", 1)]
    assert calls("asked to stop") == []
    assert len(calls("ended")) == 1


@pytest.mark.parametrize("task", [wait_for, await_for], ids=["sync", "async"])
def test_a_call_is_asked_to_stop_once_all_its_jobs_were_cancelled(stage, task):
    jobs = task.submit_many([str(stage.file("never"))] * 3)
    with app.worker(processes=1):
        until(calls, "the call has begun")
        for job in jobs:
            job.cancel()
        assert ended(jobs) == [("cancelled", 1)] * 3
    assert len(calls("asked to stop")) == 1


def test_a_call_that_ignores_its_cancellation_is_killed_after_the_grace_time(stage):
    jobs = silent.using(retry=1).submit_many([1, 2])
    with app.worker(processes=1, cancel_grace="200ms"):
        until(calls, "the call has begun")
        for job in jobs:
            job.cancel()
        assert ended(jobs) == [("cancelled", 1)] * 2


def test_an_urgent_job_waits_for_the_running_call_and_no_longer(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 12)
    with app.worker(processes=1):
        until(calls, "the first call has begun")
        urgent = plain.using(priority="critical").submit()
        path.touch()
        urgent.result(timeout="30s")
        ended(jobs)
    words = [line["word"] for line in read_lines()]
    assert words.index("plain") == words.index("ended") + 1
    assert words.count("ended") == 3


def test_a_stop_hands_back_what_has_not_started_and_lets_the_call_end(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 8)
    with app.worker(processes=1, grace="30s"):
        until(calls, "the call has begun")
        path.touch()
    assert [job.info().state for job in jobs] == [State.COMPLETED] * 4 + [State.QUEUED] * 4
    assert {job.info().attempt for job in jobs} == {0, 1}


@pytest.mark.parametrize("task", [wait_for, await_for], ids=["sync", "async"])
def test_a_call_that_outlasts_the_grace_time_goes_back_uncharged(stage, task):
    path = stage.file("go")
    jobs = task.submit_many([str(path)] * 3)
    with app.worker(processes=1, grace="200ms"):
        until(calls, "the call has begun")
    assert [(job.info().state, job.info().attempt) for job in jobs] == [(State.QUEUED, 0)] * 3
    path.touch()
    with app.worker(processes=1):
        assert ended(jobs) == [("completed", 1)] * 3


# -- calls that wait to be full ----------------------------------------------------------------------------------------


def test_a_call_that_lingers_starts_when_it_is_full_and_why_says_so(stage):
    with app.worker(processes=1):
        first = patient.submit_many([1, 2])
        why = first[0].why()
        assert [cause.kind for cause in why.causes] == ["lingering"]
        assert "its call has 2 of 3 jobs; it waits for more, until" in str(why)
        assert why.starts_before is not None
        start = time.monotonic()
        third = patient.submit(3)
        ended([*first, third])
        assert time.monotonic() - start < 15
    assert calls() == [[1, 2, 3]]


def test_a_call_that_stays_short_starts_when_its_first_job_has_waited_long_enough(stage):
    with app.worker(processes=1):
        jobs = briefly.submit_many([1, 2])
        assert ended(jobs) == [("completed", 1)] * 2
        submitted, started, *_ = jobs[0].history()
        assert (started.at - submitted.at).total_seconds() >= 0.45
    assert calls() == [[1, 2]]


def test_jobs_show_names_the_call(stage):
    path = stage.file("go")
    jobs = wait_for.submit_many([str(path)] * 3)
    with app.worker(processes=1):
        until(calls, "the call has begun")
        shown = [command(f"jobs show {job.id}", stage) for job in jobs]
        path.touch()
        ended(jobs)
    assert all(f"3 jobs, of which {jobs[0].id} is the first" in text for text in shown)


def command(words: str, stage) -> str:
    return str(CliRunner().invoke(root, [*words.split(), "--url", stage.url]).output)

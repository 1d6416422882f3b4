"""What jobs report: log lines, progress, checkpoints, results; and the scratch folder of an attempt."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import time
from pathlib import Path

import pytest
from worker_processes import ask, is_alive, read_lines, until
from worker_tasks import (
    acount_on,
    alog_much,
    app,
    count_on,
    deaf,
    fail_mutely,
    fail_strangely,
    fail_until,
    give,
    hold_until_resumed,
    leave,
    log_much,
    noop,
    refuse,
    report,
    report_often,
    submit_more,
    until_cancelled,
    use_scratch,
)

from daybreak import JobCancelled, JobFailed, State


@pytest.fixture(scope="module")
def worker(shared_stage):
    # The log level is read when a child is started, so set it before.
    logging.getLogger("daybreak.job").setLevel(logging.INFO)
    with app.worker(lease_for="1s", processes=2, cancel_grace="300ms") as worker:
        yield worker
    logging.getLogger("daybreak.job").setLevel(logging.NOTSET)


# -- log lines ---------------------------------------------------------------------------------------------------------


def test_log_lines_say_which_attempt_failed_why_and_when_it_is_retried(worker, caplog):
    caplog.set_level(logging.INFO)
    job = fail_until.submit(3)
    assert job.result(timeout="20s") == 3
    until(lambda: "succeeded on attempt 3/3" in caplog.text, "the last outcome is logged")
    lines = [line.getMessage() for line in caplog.records if job.id in line.getMessage()]
    assert len(lines) == 3, lines
    assert re.search(r"attempt 1/3 failed: ConnectionError: no answer at try 1; retrying in 0\.\d s", lines[0])
    assert re.search(r"attempt 2/3 failed: ConnectionError: no answer at try 2; retrying in 0\.\d s", lines[1])
    assert lines[2].endswith("succeeded on attempt 3/3")
    levels = [line.levelname for line in caplog.records if job.id in line.getMessage()]
    assert levels == ["WARNING", "WARNING", "INFO"]


def test_successes_and_final_failures_are_logged_at_their_level(worker, caplog):
    caplog.set_level(logging.DEBUG, logger="daybreak.worker")
    good, bad = noop.submit(1), refuse.submit()
    good.wait(timeout="20s")
    with pytest.raises(JobFailed, match="Permanent: never"):
        bad.result(timeout="20s")
    until(lambda: all(job.id in caplog.text for job in (good, bad)), "both are logged")
    said = {job.id: [line for line in caplog.records if job.id in line.getMessage()] for job in (good, bad)}
    assert [line.levelname for line in said[good.id]] == ["DEBUG"]
    assert [line.levelname for line in said[bad.id]] == ["ERROR"]
    assert "attempt 1/3 failed: Permanent: never; not retrying" in said[bad.id][0].getMessage()


def test_log_lines_of_jobs_go_to_the_workers_logging_beside_large_results(worker, caplog):
    """Many jobs log and report at the same time over one connection to the supervisor."""
    jobs = [task.submit(100) for task in (log_much, alog_much) for _ in range(12)]
    for job in jobs:
        assert job.result(timeout="60s") == "x" * 200_000
    for job in jobs:
        said = [record.getMessage() for record in caplog.records if job.id in record.getMessage()]
        said = [line for line in said if "line " in line]
        assert [line.rpartition("line ")[2] for line in said] == [str(n) for n in range(100)]
        assert job.info().attempt == 1


# -- progress ----------------------------------------------------------------------------------------------------------


def test_progress_is_in_the_store_while_the_job_runs(worker, shared_stage, began):
    gate = shared_stage.file("progress-gate")
    job = report.submit(str(gate))
    began(job, word="said")
    until(lambda: job.info().progress == 0.25, "the store shows it")
    assert job.info().message == "a quarter"
    gate.touch()
    job.result(timeout="20s")


def test_of_many_progress_updates_the_last_is_stored_and_few_are_written(worker, shared_stage, began):
    gate = shared_stage.file("often-gate")
    job = report_often.submit(str(gate))
    began(job, word="said")
    until(lambda: job.info().message == "the last", "the store shows the last")
    gate.touch()
    job.result(timeout="20s")
    assert 1 <= len(ask(app, lambda client: progress_of(client, job.id))) < 20


async def progress_of(client, job):
    """Every progress message of a job that was written to the store."""
    found, cursor = [], None
    while (feed := await client.store.events(cursor)).events:
        found += [event for event in feed.events if event.kind == "progress" and event.job == job]
        cursor = feed.cursor
    return found


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [count_on, acount_on], ids=["sync", "async"])
def test_state_and_steps_survive_the_death_of_the_process(worker, began, task):
    job = task.submit(10)
    os.kill(began(job, word="half way")["pid"], signal.SIGKILL)
    assert job.result(timeout="30s") == [5, 42, 2]
    counted = [line["n"] for line in read_lines(job=job.id, word="counted")]
    assert counted == list(range(10)), "each was counted once"
    assert len(read_lines(job=job.id, word="spent")) == 1, "the step was not taken again"


# -- scratch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["return", "fail"])
def test_the_scratch_folder_is_gone_when_the_attempt_has_ended(worker, how):
    job = use_scratch.submit(how)
    job.wait(timeout="20s")
    [line] = read_lines(job=job.id, word="scratch")
    assert not Path(line["path"]).exists()


def test_the_scratch_folder_of_an_attempt_whose_process_died_is_gone_too(worker):
    job = use_scratch.submit("die")
    job.wait(timeout="20s")
    [line] = read_lines(job=job.id, word="scratch")
    deadline = time.monotonic() + 3
    while Path(line["path"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    left = Path(line["path"]).exists()
    if left:
        (Path(line["path"]) / "notes.txt").unlink()
        Path(line["path"]).rmdir()
    assert not left


# -- results and errors ------------------------------------------------------------------------------------------------


def test_a_result_that_cannot_be_encoded_fails_and_its_repr_is_kept(worker):
    job = give.submit("thing")
    with pytest.raises(JobFailed, match="<a thing that cannot travel>") as failed:
        job.result(timeout="20s")
    assert failed.value.reason == "error"
    assert job.info().attempt == 1, "the work was done: it is not done again"


@pytest.mark.parametrize("what", ["half", "endless"])
def test_a_result_with_invalid_text_does_not_affect_other_jobs(worker, what):
    job = give.submit(what)
    job.wait(timeout="20s")
    assert job.state() in {State.FAILED, State.COMPLETED}
    assert noop.submit(2).result(timeout="20s") == 2


def test_results_that_plain_json_cannot_hold_come_back_equal(worker):
    assert math.isnan(give.submit("nan").result(timeout="20s"))
    assert give.submit("inf").result(timeout="20s") == math.inf
    assert give.submit("deep").result(timeout="20s") == {"minus": [-math.inf, None]}


def test_a_large_result_is_not_lost(worker):
    assert give.submit("wide").result(timeout="30s") == "x" * 3_000_000


def test_errors_of_any_kind_are_reported(worker):
    with pytest.raises(JobFailed, match="Mute"):
        fail_mutely.submit().result(timeout="20s")
    with pytest.raises(JobFailed, match=r"caf\\udce9"):
        fail_strangely.submit().result(timeout="20s")
    with pytest.raises(JobFailed, match="SystemExit"):
        leave.submit().result(timeout="20s")


def test_a_job_may_submit_jobs(worker):
    assert submit_more.submit(3).result(timeout="30s") == [36, 36, 36]


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_job_that_checks_for_it_is_cancelled_soon_and_never_completes(worker, began):
    job = until_cancelled.submit()
    began(job)
    assert job.cancel().verdict == "requested"
    began(job, word="heard")
    with pytest.raises(JobCancelled):
        job.result(timeout="20s")


def test_a_job_that_ignores_a_cancel_is_killed_after_the_grace_time(worker, began):
    job = deaf.submit()
    pid = began(job)["pid"]
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout="20s")
    until(lambda: not is_alive(pid), "its process is gone")


def test_a_running_job_that_is_suspended_stops_uncharged_and_goes_on_when_resumed(worker, began):
    job = deaf.submit()
    began(job)
    job.suspend("not now")
    until(lambda: job.state() is State.SUSPENDED, "it is suspended")
    assert job.info().attempt == 0
    job.resume()
    began(job, times=2)
    job.cancel()
    job.wait(timeout="20s")


def test_a_job_may_suspend_itself(worker):
    job = hold_until_resumed.submit()
    until(lambda: job.state() is State.SUSPENDED, "it is suspended")
    assert job.info().note == "waits for a signature"
    job.resume()
    assert job.result(timeout="20s") == "signed"
    assert job.info().attempt == 1


def test_counts_are_right_in_the_end(worker):
    counts = ask(app, lambda client: client.count())
    assert counts[State.RUNNING] == counts[State.SUSPENDED] == 0

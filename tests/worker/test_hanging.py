"""A job that shows no sign of life is reported with where it stands, and ended; one that lives is left alone."""

from __future__ import annotations

import logging
import sys

import pytest
import worker_hangs as hangs

from daybreak import JobFailed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only progress and log lines are seen")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    hangs.app.use(f"sqlite:///{tmp_path_factory.mktemp('hangs')}/jobs.db")
    with hangs.app.worker(lease_for="1s", processes=2) as worker:
        yield worker
    hangs.app.close()


def failed(job):
    with pytest.raises(JobFailed) as trouble:
        job.result(timeout="20s")
    return trouble.value


def test_one_that_hangs_is_ended_and_says_where_it_stood(worker, caplog):
    with caplog.at_level(logging.ERROR, logger="daybreak.worker"):
        job = hangs.sleeps_for_ever.submit()
        trouble = failed(job)
    assert trouble.reason == "timeout"
    assert "showed no sign of life" in str(trouble)
    assert "no progress, CPU time or output" in str(trouble)
    stack = job.info().failure.traceback
    assert "waits_for_nobody" in stack
    assert "time.sleep(60)" in stack
    [line] = [record.getMessage() for record in caplog.records if "it is ended" in record.getMessage()]
    assert "sleeps_for_ever" in line
    assert "waits_for_nobody" in line


def test_one_that_holds_the_interpreter_is_asked_by_a_signal(worker):
    job = hangs.holds_the_interpreter.submit()
    assert "showed no sign of life" in str(failed(job))
    assert "holds_the_interpreter" in job.info().failure.traceback


@pytest.mark.parametrize(
    ("task", "given"),
    [
        (hangs.computes, 2.5), (hangs.has_another_compute, 2.5), (hangs.tells_of_progress, 5), (hangs.prints, 5),
    ],
    ids=["computes", "has another process compute", "tells of progress", "prints"],
)  # fmt: skip
def test_one_that_lives_is_left_alone(worker, task, given):
    assert task.submit(given).result(timeout="20s") == "done"


def test_one_that_hung_is_tried_again_and_its_limit_stays(worker):
    job = hangs.hangs_once.submit()
    assert job.result(timeout="20s") == 2
    assert job.info().timeouts == 0
    assert [event.kind for event in job.history() if event.error] == ["retrying"]


def test_an_async_one_is_ended_alone(worker):
    beside = hangs.neighbour.submit(4.0)
    job = hangs.awaits_for_ever.submit()
    assert "showed no sign of life" in str(failed(job))
    assert "nothing_comes" in job.info().failure.traceback
    assert beside.result(timeout="20s") == 4.0
    assert beside.info().attempt == 1

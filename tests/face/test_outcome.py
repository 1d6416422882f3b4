"""How a job ended, as a value: whatever became of it, nothing is raised until its result is asked for."""

from __future__ import annotations

import pytest

from daybreak import Daybreak, JobCancelled, JobFailed, JobOutcome, Permanent, ResultTimeout


@pytest.fixture
def ratio(app):
    @app.task
    def ratio(a: float, b: float) -> float:
        if b == 0:
            raise Permanent("b is zero")
        return a / b

    return ratio


def test_of_a_completed_job_it_has_the_result(app, ratio):
    job = ratio.submit(1, 4)
    with app.worker():
        outcome = job.outcome(timeout="20s")
    assert isinstance(outcome, JobOutcome)
    assert (outcome.ok, outcome.result, outcome.state) == (True, 0.25, "completed")
    assert (outcome.reason, outcome.error, outcome.traceback, outcome.attempt) == (None, "", "", 1)
    assert str(outcome) == f"job {job.id} (ratio) completed"


def test_of_a_failed_job_it_says_why_and_only_its_result_raises(app, ratio):
    job = ratio.using(key="the bad one").submit(1, 0)
    with app.worker():
        outcome = job.outcome(timeout="20s")
    assert (outcome.ok, outcome.state, outcome.reason) == (False, "failed", "error")
    assert (outcome.id, outcome.task, outcome.key) == (job.id, "ratio", "the bad one")
    assert outcome.error == "Permanent: b is zero"
    assert "raise Permanent" in outcome.traceback
    assert str(outcome) == "job 'the bad one' (ratio) failed (error, attempt 1): Permanent: b is zero"
    with pytest.raises(JobFailed) as failed:
        outcome.result  # noqa: B018 - reading it raises
    with pytest.raises(JobFailed) as direct:
        job.result()
    assert str(failed.value) == str(direct.value)


def test_of_a_job_that_never_ran_it_says_why(app, ratio):
    late, gone = ratio.using(expires_in="1ms").submit(1, 2), ratio.submit(1, 2)
    gone.cancel()
    with app.worker():
        expired = late.outcome(timeout="20s")
    assert (expired.ok, expired.state, expired.reason, expired.attempt) == (False, "failed", "expired", 0)
    outcome = gone.outcome()
    assert (outcome.ok, outcome.state, outcome.reason, outcome.error) == (False, "cancelled", None, "")
    assert str(outcome) == f"job {gone.id} (ratio) was cancelled"
    with pytest.raises(JobCancelled):
        outcome.result  # noqa: B018


def test_a_job_that_has_not_ended_has_none_yet(ratio):
    with pytest.raises(ResultTimeout):
        ratio.submit(1, 2).outcome(timeout="10ms")


def test_one_bad_point_does_not_hide_the_others(app, ratio):
    jobs = [ratio.submit(1, b) for b in (1, 0, 2)]
    with app.worker():
        outcomes = [job.outcome(timeout="20s") for job in app.as_completed(jobs)]
    assert sorted(outcome.result for outcome in outcomes if outcome.ok) == [0.5, 1]
    assert [outcome.id for outcome in outcomes if not outcome.ok] == [jobs[1].id]


async def test_the_async_twin_does_the_same(tmp_path):
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def fail() -> None:
        raise Permanent("no")

    async with app, app.aworker():
        outcome = await (await fail.asubmit()).aoutcome(timeout="20s")
        assert (outcome.ok, outcome.reason, outcome.error) == (False, "error", "Permanent: no")

"""Real workers and work that goes on elsewhere: the worker is free, it may stop, be killed or start again meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from worker_processes import read_lines, until
from worker_tasks import apod, app, fast_pod, noop, pod

from daybreak import AttemptOver, State


def is_detached(job):
    return until(lambda: info if (info := job.info()).detached else None, f"{job} is detached")


@pytest.mark.parametrize("task", [pod, apod], ids=["sync", "async"])
def test_a_detached_job_outlives_its_worker_and_is_finished_from_outside(stage, began, task):
    job = task.submit()
    with stage.process("--processes", "1", "--async-jobs", "1") as worker:
        fence = began(job)["fence"]
        info = is_detached(job)
        assert (info.state, info.fence, info.worker is not None) == (State.RUNNING, fence, True)
        assert noop.submit(1).result(timeout="20s") == 1  # its only process is free
        assert worker.stop() == 0
    assert job.info() == info  # a worker that stops hands back what it runs, and this is not among it
    with stage.process("--processes", "1", "--name", "other") as other:
        assert noop.submit(2).result(timeout="20s") == 2
        assert other.stop() == 0
    assert job.info().detached
    app.finish(job, "done", fence=fence)
    assert job.result() == "done"
    assert [event.kind for event in job.history()] == ["submitted", "started", "detached", "completed"]


def test_a_killed_worker_does_not_take_a_detached_job_with_it(stage, began):
    job = pod.submit()
    with stage.process("--processes", "1") as worker:
        fence = began(job)["fence"]
        is_detached(job)
        worker.kill()
    with stage.process("--processes", "1", "--name", "other") as other:
        other.wait_ready(app)
        assert noop.submit(2).result(timeout="20s") == 2
        assert job.info().detached
        app.finish(job, "done", fence=fence)
        assert job.result(timeout="20s") == "done"
        assert other.stop() == 0


def test_a_lost_outcome_ends_with_the_deadline_and_the_older_pod_is_refused(stage, began):
    job = pod.submit("2s")
    with stage.process("--processes", "1") as worker:
        first = began(job)["fence"]
        second = began(job, times=2)["fence"]  # after its deadline it is run again
        is_detached(job)
        info = job.info()
        assert (info.attempt, info.lost, info.timeouts) == (2, 0, 1)
        with pytest.raises(AttemptOver):
            app.finish(job, "late", fence=first)
        app.finish(job, "good", fence=second)
        assert job.result(timeout="20s") == "good"
        assert worker.stop() == 0


def test_a_pod_that_is_faster_than_its_worker(stage, began):
    job = fast_pod.submit()
    with stage.process("--processes", "1") as worker:
        began(job, word="finished")
        assert job.result(timeout="20s") == "result 1"
        assert noop.submit(1).result(timeout="20s") == 1
        assert worker.stop() == 0
    assert [event.kind for event in job.history()] == ["submitted", "started", "completed"]


def test_cancel_reaches_a_detached_job_without_any_worker(stage, began):
    job = pod.submit()
    with stage.process("--processes", "1") as worker:
        began(job)
        is_detached(job)
        assert worker.stop() == 0
    job.cancel()
    assert job.info().state is State.CANCELLED


def test_how_long_a_detached_job_waited_is_in_the_trends(stage, began):
    job = pod.submit()
    with stage.process("--processes", "1") as worker:
        began(job)
        is_detached(job)
        assert worker.stop() == 0  # it writes its samples
    assert [group.name for group in app.trends("1h", by="task").groups] == ["pod"]
    app.finish(job, "done")
    assert app.trends("1h", by="task").figures.wait_p50 > timedelta()


def test_workers_killed_at_any_moment_lose_no_job_and_no_outcome(stage):
    """Pods end at once, before or after their worker has detached the job, and say so again and again; workers are
    killed meanwhile. What an attempt said first counts, and nothing that an earlier attempt says later."""
    jobs = {job.id: job for job in (pod.submit("1h") for _ in range(24))}
    accepted: dict[str, str] = {}

    def finish_pods() -> int:
        for line in read_lines(word="began"):
            job, result = line["job"], f"result of {line['fence']}"
            try:
                finished = app.finish(job, result, fence=line["fence"])
            except AttemptOver:
                assert accepted[job] != result
                continue
            assert accepted.setdefault(job, result) == result
            assert finished.state is State.COMPLETED
        return len(accepted)

    for kills in (1, 2):
        with stage.process("--processes", "2") as worker:
            until(lambda kills=kills: finish_pods() >= 8 * kills, f"{8 * kills} jobs are done")
            worker.kill()
    with stage.process("--processes", "2") as worker:
        until(lambda: finish_pods() == len(jobs), "all jobs are done")
        worker.wait_ready(app)
        assert worker.stop() == 0
    for job in jobs.values():
        assert job.result(timeout="20s") == accepted[job.id]
        assert [event.kind for event in job.history()].count("completed") == 1

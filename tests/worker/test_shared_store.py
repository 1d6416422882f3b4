"""Several programs share one store: old and new code side by side, and apps with different tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
import worker_new
import worker_old
import worker_tasks
import worker_urgent_app
from worker_processes import until

from daybreak import State

OLD, NEW = Path(worker_old.__file__), Path(worker_new.__file__)


@pytest.fixture
def apps(stage):
    others = (worker_old.app, worker_new.app, worker_urgent_app.app)
    for app in others:
        app.use(stage.url)
    yield
    for app in others:
        app.close()


def test_old_and_new_workers_share_a_store_and_each_runs_the_tasks_it_knows(apps, stage):
    first = [worker_old.resize.submit(n) for n in range(5)]
    second = [worker_new.resize.submit(n, height=1) for n in range(5)]
    fresh, gone = worker_new.only_now.submit(), worker_old.only_then.submit()
    with stage.process("--processes", "1", target=OLD) as old:
        assert [job.result(timeout="30s") for job in first] == [f"old {n}" for n in range(5)]
        assert gone.result(timeout="30s") == "old"
        assert {job.state() for job in (*second, fresh)} == {State.QUEUED}
        with stage.process("--processes", "1", target=NEW) as new:
            assert [job.result(timeout="30s") for job in second] == [f"new {n}x1" for n in range(5)]
            assert fresh.result(timeout="30s") == "new"
            both = [worker_old.resize.submit(n).result(timeout="30s") for n in range(10)]
            assert set(both) <= {*(f"old {n}" for n in range(10)), *(f"new {n}x{2 * n}" for n in range(10))}
            assert old.stop() == 0
            later = worker_old.resize.submit(8)
            assert later.result(timeout="30s") == "new 8x16", "what the old one left is upgraded"
            assert worker_old.before_renaming.submit(3).result(timeout="30s") == "new 3", "found by its old name"
            left = worker_old.only_then.submit()
            assert worker_new.only_now.submit().result(timeout="30s") == "new"
            assert left.state() is State.QUEUED, "no worker knows the task: the job waits, uncharged"
            assert left.info().attempt == 0
            assert new.stop() == 0


def test_a_hundred_thousand_jobs_of_unknown_tasks_do_not_delay_a_worker(apps, stage):
    crowd = worker_urgent_app.foreign.using(priority="critical").submit_many({"n": n} for n in range(100_000))
    with worker_tasks.app.worker(processes=1):
        assert worker_tasks.noop.using(priority="background").submit(1).result(timeout="120s") == 1
        assert worker_tasks.noop.map(range(500), timeout="120s") == list(range(500))
        with worker_urgent_app.app.worker(processes=1):
            assert crowd[0].result(timeout="120s") == 0
            until(lambda: crowd[300].state() is State.COMPLETED, "the others are worked off as well")
            assert worker_tasks.noop.submit(2).result(timeout="120s") == 2
            assert crowd[-1].state() is State.QUEUED, "both work at the same time"


def test_waiting_for_a_job_that_no_worker_knows_says_how_to_start_a_worker(apps, stage, capsys):
    job = worker_new.nobody_asked.submit()
    with pytest.raises(TimeoutError):
        job.result(timeout="2500ms")
    assert "no live worker knows the task 'nobody_asked'; start one with: daybreak worker" in capsys.readouterr().err

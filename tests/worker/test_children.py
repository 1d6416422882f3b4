"""Children are replaced after a number of jobs or above a memory limit, and there are never too many."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import worker_printing
from worker_processes import family, is_alive, read_lines, until
from worker_tasks import app, grow, idle, nap, noop, pid

from daybreak import State

_OTHERS: set[int] = set()  # processes that other tests of this process have left running, such as a browser


@pytest.fixture(autouse=True)
def _others() -> None:
    _OTHERS.clear()
    _OTHERS.update(family(os.getpid()))


def children() -> list[int]:
    return [pid for pid in family(os.getpid()) if pid not in _OTHERS]


def sync_children(worker) -> int:
    """The expected number of children: one per slot, and one for async tasks."""
    return worker.settings.slots + 1


def test_a_child_is_replaced_after_recycle_after_jobs(stage):
    with app.worker(processes=1, recycle_after=3) as worker:
        pids = [pid.submit().result(timeout="30s") for _ in range(10)]
        runs = [pids.count(one) for one in dict.fromkeys(pids)]
        assert all(run <= 3 for run in runs), runs
        assert len(runs) >= 4
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")
        assert all(not is_alive(one) for one in dict.fromkeys(pids) if one not in children())


def test_recycling_during_many_short_jobs_loses_none_and_leaves_no_extra_child(stage):
    with app.worker(processes=2, recycle_after=20) as worker:
        assert noop.map(range(300), timeout="60s") == list(range(300))
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


def test_a_child_over_its_memory_limit_is_replaced_between_jobs(stage):
    with app.worker(processes=1, memory_limit=150 << 20) as worker:
        small = pid.submit().result(timeout="30s")
        assert pid.submit().result(timeout="30s") == small
        large = grow.submit(200).result(timeout="30s")
        assert large == small, "it was not replaced while it ran"
        until(lambda: pid.submit().result(timeout="30s") != large, "another child works")
        until(lambda: not is_alive(large), "the large one is gone")
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


@pytest.mark.parametrize("short", [noop, idle], ids=["behind another task", "behind the same task"])
def test_an_outcome_is_reported_while_the_next_job_runs(stage, short):
    """Outcomes of short jobs are sent together, but an outcome must not wait for a long job that follows."""
    with app.worker(processes=1, cancel_grace="100ms"):
        short.map([0] * 1500, timeout="30s")  # now the task is known to be quick, and the child holds some jobs ahead
        app.queue("default").pause()
        jobs = [*short.submit_many([{short.definition.parameters[0]: 0}] * 400), idle.submit(30.0)]
        *before, long = jobs
        app.queue("default").resume()
        until(lambda: long.state() is State.RUNNING, "the long one runs, or is about to")
        deadline = time.monotonic() + 5
        left = before
        while left and time.monotonic() < deadline:
            left = [job for job in left if job.state() is not State.COMPLETED]
        long.cancel()
        long.wait(timeout="30s")
    assert not left, f"{len(left)} jobs had ended long ago and were still shown as running"


def test_work_held_ahead_is_handed_back_while_a_long_job_runs(stage, began):
    """Another slot may run it: no job is stuck behind one that turned out to be long."""
    with app.worker(processes=2, cancel_grace="100ms"):
        noop.map(range(1500), timeout="30s")
        long = nap.submit(5.0)
        short = noop.submit_many([{"n": n} for n in range(200)])
        began(long)
        for job in short:
            assert job.wait(timeout="4s").state is State.COMPLETED
        assert not read_lines(job=long.id, word="ended")
        assert all(job.info().attempt == 1 for job in short[::20])
        long.cancel()


@pytest.fixture
def printing(stage):
    """The output of a worker whose task printed eight lines, and that has ended."""

    def print_and_end(*words: str) -> str:
        worker_printing.app.use(stage.url)
        with stage.process("--processes", "4", *words, target=Path(worker_printing.__file__)) as worker:
            worker.wait_ready(worker_printing.app)
            for job in [worker_printing.say.submit(n) for n in range(8)]:
                job.result(timeout="30s")
            assert worker.stop() == 0
        return worker.said

    yield print_and_end
    worker_printing.app.close()


@pytest.mark.parametrize("words", [(), ("--recycle-after", "1")], ids=["stopped", "recycled"])
def test_a_child_that_is_told_to_exit_runs_its_exit_handlers(printing, words):
    printing(*words)
    assert {line["n"] for line in read_lines(word="goodbye")} == set(range(8))


@pytest.mark.parametrize("words", [(), ("--recycle-after", "1")], ids=["stopped", "recycled"])
def test_output_of_a_task_is_not_lost_when_its_child_ends(printing, words):
    """Output to a file or a pipe is buffered, and must be flushed when the child ends."""
    said = printing(*words)
    assert not [n for n in range(8) if f"said {n}" not in said]


def test_lines_of_jobs_that_print_at_the_same_time_stay_whole(stage):
    """Also if the environment asks for output without a buffer, as images of Python often do."""
    worker_printing.app.use(stage.url)
    target = Path(worker_printing.__file__)
    try:
        with stage.process("--processes", "4", target=target, PYTHONUNBUFFERED="1") as worker:
            for job in [worker_printing.say_much.submit(n, 1000) for n in range(4)]:
                job.result(timeout="60s")
            assert worker.stop() == 0
            found = set(worker.said.splitlines())
    finally:
        worker_printing.app.close()
    assert not {f"line {line} of {n}" for n in range(4) for line in range(1000)} - found

"""Children come and go: replaced after so many jobs or at so much memory, and never more than there should be."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import worker_printing
from worker_deeds import app, grow, idle, nap, noop, pid
from worker_hand import family, is_alive, read_lines, until

from daybreak import State


def children() -> list[int]:
    return family(os.getpid())


def sync_children(worker) -> int:
    """How many there should be: one for each slot, and one for async tasks."""
    return worker.settings.slots + 1


def test_a_child_is_replaced_after_its_number_of_jobs(stage):
    with app.worker(processes=1, recycle_after=3) as worker:
        pids = [pid.submit().result(timeout="30s") for _ in range(10)]
        runs = [pids.count(one) for one in dict.fromkeys(pids)]
        assert all(run <= 3 for run in runs), runs
        assert len(runs) >= 4
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")
        assert all(not is_alive(one) for one in dict.fromkeys(pids) if one not in children())


def test_recycling_in_the_midst_of_many_short_jobs_loses_none_and_leaves_no_child_over(stage):
    with app.worker(processes=2, recycle_after=20) as worker:
        assert noop.map(range(300), timeout="60s") == list(range(300))
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


def test_a_child_that_has_grown_too_large_is_replaced_between_jobs(stage):
    with app.worker(processes=1, memory_limit=150 << 20) as worker:
        small = pid.submit().result(timeout="30s")
        assert pid.submit().result(timeout="30s") == small
        large = grow.submit(200).result(timeout="30s")
        assert large == small, "it was not replaced while it ran"
        until(lambda: pid.submit().result(timeout="30s") != large, "another child works")
        until(lambda: not is_alive(large), "the large one is gone")
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


@pytest.mark.parametrize("short", [noop, idle], ids=["behind another task", "behind the same task"])
def test_a_job_that_has_ended_is_told_of_while_the_next_one_runs(stage, short):
    """Short jobs travel together; one that has ended must not wait for a long one behind it."""
    with app.worker(processes=1, cancel_grace="100ms"):
        short.map([0] * 1500, timeout="30s")  # now it is known to be quick, and holds a few ahead
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


def test_what_a_child_held_ahead_is_handed_back_while_a_long_job_runs(stage, began):
    """An urgent slot elsewhere may take it: nothing is stuck behind a job that turned out long."""
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
    """A worker that was told to print eight lines, and has ended since."""

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
def test_a_child_that_is_let_go_may_do_what_is_to_be_done_at_exit(printing, words):
    printing(*words)
    assert {line["n"] for line in read_lines(word="goodbye")} == set(range(8))


@pytest.mark.parametrize("words", [(), ("--recycle-after", "1")], ids=["stopped", "recycled"])
def test_what_a_task_prints_is_not_lost_when_its_child_ends(printing, words):
    """Output to a file or a pipe is buffered."""
    said = printing(*words)
    assert not [n for n in range(8) if f"said {n}" not in said]

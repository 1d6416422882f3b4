"""Children come and go: replaced after so many jobs or at so much memory, and never more of them than there should be."""

from __future__ import annotations

import os
import time

import pytest
from worker_deeds import app, grow, nap, noop, pid
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
        assert noop.map(range(600), timeout="60s") == list(range(600))
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


def test_a_child_that_has_grown_too_large_is_replaced_between_jobs(stage):
    with app.worker(processes=1, memory_limit=150 << 20) as worker:
        small = pid.submit().result(timeout="30s")
        assert pid.submit().result(timeout="30s") == small
        large = grow.submit(200).result(timeout="30s")
        assert large == small, "it was not replaced while it ran"
        after = pid.submit().result(timeout="30s")
        assert after != large
        until(lambda: not is_alive(large), "the large one is gone")
        until(lambda: len(children()) == sync_children(worker), "as many children as slots")


def test_a_job_that_has_ended_is_told_of_while_the_next_one_runs(stage, began):
    """Short jobs travel together; one that has ended must not wait for a long one behind it."""
    with app.worker(processes=1):
        noop.map(range(1500), timeout="30s")  # now it is known to be quick, and holds a few ahead
        short = noop.submit_many([{"n": n} for n in range(400)])
        long = nap.submit(30.0)
        began(long)
        unfinished = [job for job in short if job.state() is not State.COMPLETED]
        deadline = time.monotonic() + 3
        while unfinished and time.monotonic() < deadline:
            unfinished = [job for job in unfinished if job.state() is not State.COMPLETED]
        left = len(unfinished)
        long.cancel()
        long.wait(timeout="20s")
    assert left == 0, f"{left} jobs had ended long ago and were still shown as running"


def test_what_a_child_held_ahead_is_handed_back_while_a_long_job_runs(stage, began):
    """An urgent slot elsewhere may take it: nothing is stuck behind a job that turned out long."""
    with app.worker(processes=2):
        noop.map(range(1500), timeout="30s")
        long = nap.submit(5.0)
        short = noop.submit_many([{"n": n} for n in range(200)])
        began(long)
        for job in short:
            assert job.wait(timeout="4s").state is State.COMPLETED
        assert not read_lines(job=long.id, word="ended")
        assert all(job.info().attempt == 1 for job in short[::20])
        long.cancel()


@pytest.mark.parametrize("ends", ["stops", "is recycled"])
def test_what_a_task_prints_is_not_lost_when_its_child_ends(stage, tmp_path, ends):
    """Output to a file or a pipe is buffered: a child must be let write it out before it is ended."""
    target = tmp_path / "printing.py"
    target.write_text(
        "import atexit, os, sys\n"
        "from daybreak import Daybreak\n"
        "app = Daybreak()\n"
        "@app.task\n"
        "def say(n: int) -> None:\n"
        "    atexit.register(lambda: (print('bye', n), sys.stdout.flush()))\n"
        "    print('said', n)\n"
    )
    words = ("--recycle-after", "1") if ends == "is recycled" else ()
    rounds = 8
    with stage.process("--processes", "4", *words, target=target) as worker:
        from daybreak.worker.target import load

        say = load(str(target)).find_task("say")
        own = say._find_sessions
        assert own is not None
        app_of_file = load(str(target))
        app_of_file.use(stage.url)
        jobs = [app_of_file.find_task("say").submit(n) for n in range(rounds)]
        for job in jobs:
            job.result(timeout="30s")
        app_of_file.close()
        assert worker.stop() == 0
    said = worker.said
    missing = [n for n in range(rounds) if f"said {n}" not in said]
    unheard = [n for n in range(rounds) if f"bye {n}" not in said]
    assert not missing, f"lost: {missing}"
    assert not unheard, f"what was to be done at exit was not: {unheard}"

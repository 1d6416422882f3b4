"""Jobs wait, then a worker starts: from the first start until nothing is unfinished."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.starts import Starts, wait_until
from benchmarks.watch import Timed
from benchmarks.workers import Ours, runner_for


def drain(name: str, place: Path, jobs: int) -> Timed:
    """Ours is timed until the last settlement is durable. Peers are timed to their last start: what they put off
    beyond it is given to them."""
    starts = Starts(place)
    with runner_for(name, place) as runner:
        runner.fill(jobs)
        with runner.work() as worker:
            wait_until(lambda: worker.check() and len(starts) >= jobs, "the start of every job", every=0.01)
            wait_until(runner.is_done, "the end of every job")
            done_at = time.monotonic_ns()
        began = starts.read()
        assert sorted(n for _, n in began) == list(range(jobs)), f"{len(began)} starts where {jobs} were expected"
        end = done_at if isinstance(runner, Ours) else began[-1][0]
        return Timed(jobs=jobs, seconds=(end - began[0][0]) / 1e9, facts=runner.facts())


def in_memory(place: Path, jobs: int) -> Timed:
    """The memory store and a worker in the same process, through `app.worker()`."""
    from benchmarks.apps.ours import coro, noop

    coro.use("memory://")
    starts = Starts(place)
    with coro:
        coro.find_task(noop.__name__).submit_many([{"n": n} for n in range(jobs)])
        with coro.worker() as worker:
            wait_until(lambda: worker.done >= jobs, "the end of every job")
            done_at = time.monotonic_ns()
    began = starts.read()
    assert sorted(n for _, n in began) == list(range(jobs)), f"{len(began)} starts where {jobs} were expected"
    return Timed(jobs=jobs, seconds=(done_at - began[0][0]) / 1e9)

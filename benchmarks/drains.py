"""Jobs wait, then a worker starts: from the first start until nothing is unfinished."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.processes import Process, cpu_seconds
from benchmarks.starts import Starts, wait_until
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours, runner_for, warm_up


def drain(name: str, place: Path, jobs: int, workers: int = 1) -> Timed:
    """Ours is timed until the last settlement is durable. Peers are timed to their last start: what they put off
    beyond it is given to them."""
    starts = Starts(place)
    with runner_for(name, place) as runner, ExitStack() as around:
        runner.fill(jobs)
        at_work = [around.enter_context(runner.work(name=f"worker-{n}")) for n in range(workers)]
        wait_until(lambda: _alive(at_work) and len(starts) >= jobs, "the start of every job", every=0.01)
        wait_until(runner.is_done, "the end of every job")
        done_at = time.monotonic_ns()
        began = _all_of(starts, jobs)
        end = done_at if isinstance(runner, Ours) else began[-1][0]
        return Timed(jobs=jobs, seconds=(end - began[0][0]) / 1e9, facts=runner.facts())


def crew(store: str, place: Path, jobs: int, workers: int) -> Timed:
    """So many workers, all up and warm, at a queue that was paused while it was filled: what counts is how they get on
    with one another, not how soon the last of them has started."""
    starts = Starts(place)
    with ours(store, place) as runner, ExitStack() as around:
        at_work = [around.enter_context(runner.work(name=f"worker-{n}")) for n in range(workers)]
        wait_until(lambda: _alive(at_work) and runner.workers() == workers, "every worker", within=60, every=0.05)
        warm_up(runner, starts, *at_work, jobs=100 * workers)
        queue = runner.app.queue("default")
        queue.pause()
        runner.fill(jobs)
        assert len(starts) == 0, "a job of a paused queue has started"
        spent = _spent(runner, at_work)
        queue.resume()
        wait_until(lambda: _alive(at_work) and len(starts) >= jobs, "the start of every job", every=0.01)
        wait_until(runner.is_done, "the end of every job")
        done_at = time.monotonic_ns()
        parts = {who: (now - spent[who]) / jobs * 1e6 for who, now in _spent(runner, at_work).items()}
        began = _all_of(starts, jobs)
        return Timed(jobs=jobs, seconds=(done_at - began[0][0]) / 1e9, parts=parts, facts=runner.facts())


def _spent(runner: Ours, workers: list[Process]) -> dict[str, float]:
    """Seconds of a core; as microseconds a job they say what one server, and what one worker, could carry."""
    spent = {"worker us/job": cpu_seconds(*(worker.pid for worker in workers))}
    if runner.server.pid is not None:
        spent["server us/job"] = cpu_seconds(runner.server.pid)
    return spent


def _alive(workers: list[Process]) -> bool:
    return all(worker.check() for worker in workers)


def _all_of(starts: Starts, jobs: int) -> list[tuple[int, int]]:
    began = starts.read()
    assert sorted(n for _, n in began) == list(range(jobs)), f"{len(began)} starts where {jobs} were expected"
    return began


def in_memory(jobs: int) -> Timed:
    """The memory store and a worker in the same process, through `app.worker()`. Its tasks note nothing in a file: with
    threads of one process each such call hands the interpreter to another."""
    from benchmarks.apps.silent import app, noop

    app.use("memory://")
    with app:
        noop.submit_many([{"n": n} for n in range(jobs)])
        with app.worker() as worker:
            wait_until(lambda: worker.done > 0, "the end of the first job", every=0.0005)
            before, began = worker.done, time.monotonic()
            wait_until(lambda: worker.done >= jobs, "the end of every job")
            took = time.monotonic() - began
    return Timed(jobs=jobs - before, seconds=took)

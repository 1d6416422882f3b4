"""Latency: from just before a submit to the first line of its task."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.starts import Starts, wait_until
from benchmarks.stats import quantile
from benchmarks.watch import Timed
from benchmarks.workers import Ours, at_work, ours, runner_for

URGENT = 1_000_000_000  # numbers from here on are of urgent jobs
NAP = 0.005


def paced(submit: Callable[[int], object], starts: Starts, jobs: int, every: float) -> list[float]:
    """Milliseconds from submit to start, of one job each `every` seconds."""
    asked: dict[int, int] = {}
    begin = time.monotonic()
    for n in range(URGENT, URGENT + jobs):
        time.sleep(max(0.0, begin + (n - URGENT) * every - time.monotonic()))
        asked[n] = time.monotonic_ns()
        submit(n)
    wait_until(lambda: _count_urgent(starts) >= jobs, "the start of every urgent job", every=0.05, within=60)
    return sorted((at - asked[n]) / 1e6 for at, n in starts.read() if n in asked)


def _count_urgent(starts: Starts) -> int:
    return sum(n >= URGENT for _, n in starts.read())


def _told(waits: list[float], **parts: float) -> Timed:
    p50, p99 = quantile(waits, 0.5), quantile(waits, 0.99)
    return Timed(figure=p50, parts={"p99": p99, "worst": waits[-1], **parts})


def idle(name: str, place: Path, jobs: int) -> Timed:
    """A worker with nothing to do; a job each 50 ms."""
    starts = Starts(place)
    with runner_for(name, place) as runner, at_work(runner, starts):
        return _told(paced(runner.submit, starts, jobs, 0.05))


def urgent(name: str, place: Path, jobs: int, backlog: int) -> Timed:
    """No-op jobs of low priority wait; a worker runs them as fast as it can; an urgent job each 100 ms.

    The rate of the others is that between the first and the last urgent start, so it includes the driver's own work."""
    starts = Starts(place)
    with runner_for(name, place) as runner:
        runner.fill(backlog)
        with runner.work() as worker:
            wait_until(lambda: worker.check() and len(starts) >= backlog // 100, "the worker's first jobs", within=60)
            waits = paced(runner.submit_urgent, starts, jobs, 0.1)
            left = backlog - sum(n < URGENT for _, n in starts.read())
    began = starts.read()
    first, *_, last = (at for at, n in began if n >= URGENT)
    meanwhile = sum(first <= at <= last for at, n in began if n < URGENT)
    return _told(waits, low_jobs=meanwhile / (last - first) * 1e9, left=left)


# -- behind many -------------------------------------------------------------------------------------------------------


def behind(store: str, place: Path, jobs: int, waiting: int) -> Timed:
    """How much later an urgent job starts behind very many of low priority than behind none, on a free slot: the worker
    knows only the urgent task, and the others wait for somebody else in the same queue.

    `busy slot` is the wait at a worker whose only slot is always taken by one 5 ms job of the many."""
    starts = Starts(place)
    with ours(store, place, "coro", "nap") as runner:
        urgent_task = runner.app.find_task("noop").using(priority="critical")
        _measured(runner, urgent_task.submit, starts, jobs // 4, app="narrow")  # what comes first is always later
        alone = _measured(runner, urgent_task.submit, starts, jobs, app="narrow")
        runner.fill(waiting, seconds=NAP)
        free = _measured(runner, urgent_task.submit, starts, jobs, app="narrow")
        busy = _measured(runner, urgent_task.submit, starts, jobs, app="coro")
    return Timed(figure=free / alone, parts={"busy slot": busy, "free slot": free, "free slot behind none": alone})


def _measured(runner: Ours, submit: Callable[[int], object], starts: Starts, jobs: int, *, app: str) -> float:
    starts.forget()
    with runner.work("--async-jobs", "1", app=app) as worker:
        submit(URGENT - 1)
        wait_until(lambda: worker.check() and len(starts) > 0, "the worker's first job", within=60)
        time.sleep(0.5)
        return quantile(paced(submit, starts, jobs, 0.033), 0.5)

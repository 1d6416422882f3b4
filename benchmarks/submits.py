"""Submits through the public API: a task of an app, from blocking threads or from tasks on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks import stores
from benchmarks.watch import Timed, warm_up
from daybreak import Daybreak, Task

SUBMITTED_AT_ONCE = 50_000


@contextmanager
def opened(store: str, place: Path) -> Iterator[tuple[Daybreak, Task[[int], int]]]:
    from benchmarks.apps.ours import coro

    with stores.opened(store, place) as server:
        coro.use(server.url)
        with coro:
            yield coro, coro.find_task("noop")


def threads(store: str, place: Path, jobs: int, callers: int) -> Timed:
    """`callers` threads; each waits until its submit is durable before it submits again."""
    timed = Timed(jobs=jobs)
    with opened(store, place) as (app, task):
        _in_threads(task, warm_up(jobs), callers)
        with timed.timing():
            _in_threads(task, jobs, callers)
        _expect(app, jobs + warm_up(jobs))
    return timed


def _in_threads(task: Task[[int], int], jobs: int, callers: int) -> None:
    if callers == 1:
        for n in range(jobs):
            task.submit(n)
        return
    numbers = iter(range(jobs))
    with ThreadPoolExecutor(callers) as pool:
        for ended in [pool.submit(_submit, task, numbers) for _ in range(callers)]:
            ended.result()


def _submit(task: Task[[int], int], numbers: Iterator[int]) -> None:
    for n in numbers:  # a range's iterator is one step of C: no two threads get the same number
        task.submit(n)


def tasks(store: str, place: Path, jobs: int, callers: int) -> Timed:
    """`callers` tasks on one loop; each awaits its own durable submit."""
    timed = Timed(jobs=jobs)
    with opened(store, place) as (app, task):
        asyncio.run(_in_tasks(app, task, jobs, callers, timed))
        if store != "memory":
            _expect(app, jobs + warm_up(jobs))
    return timed


async def _in_tasks(app: Daybreak, task: Task[[int], int], jobs: int, callers: int, timed: Timed) -> None:
    await _gathered(task, warm_up(jobs), callers)
    with timed.timing():
        await _gathered(task, jobs, callers)
    await app.aclose()


async def _gathered(task: Task[[int], int], jobs: int, callers: int) -> None:
    numbers = iter(range(jobs))
    await asyncio.gather(*(_asubmit(task, numbers) for _ in range(callers)))


async def _asubmit(task: Task[[int], int], numbers: Iterator[int]) -> None:
    for n in numbers:
        await task.asubmit(n)


def many(store: str, place: Path, jobs: int) -> Timed:
    """Rows of arguments in one call of `submit_many`."""
    timed = Timed(jobs=jobs)
    with opened(store, place) as (app, task):
        task.submit_many([{"n": n} for n in range(warm_up(jobs))])
        with timed.timing():
            handles = task.submit_many([{"n": n} for n in range(jobs)])
        assert len(handles) == jobs
        _expect(app, jobs + warm_up(jobs))
    return timed


def _expect(app: Daybreak, jobs: int) -> None:
    found = app.queue("default").stats().active
    assert found == jobs, f"{found} jobs wait where {jobs} were expected"

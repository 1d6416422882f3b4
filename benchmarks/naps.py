"""Tasks that sleep, in 8 slots, held against 8 bare loops that do the same and nothing else."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.starts import Starts, wait_until
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours

SLOTS = 8


def naps(store: str, kind: str, place: Path, jobs: int, ms: int) -> Timed:
    """The share of the bare rate. Both count from the first start until the last has ended."""
    from benchmarks.apps import ours as apps

    seconds = ms / 1000
    starts = Starts(place)
    if kind == "async":
        bare = asyncio.run(_bare_tasks(apps.nap, jobs, seconds))
        starts.forget()
        with ours(store, place, "coro", "nap") as runner:
            mine = _ours(runner, starts, jobs, seconds, "--async-jobs")
    else:
        bare = _bare_processes(apps.plain_nap, starts, jobs, seconds)
        starts.forget()
        with ours(store, place, "plain", "plain_nap") as runner:
            mine = _ours(runner, starts, jobs, seconds, "--processes")
    return Timed(figure=mine / bare, parts={"Daybreak, /s": mine, "bare, /s": bare})


def _ours(runner: Ours, starts: Starts, jobs: int, seconds: float, slots: str) -> float:
    with runner.work(slots, str(SLOTS)) as worker:
        # All slots are up, and such naps are known, before anything is measured: a bare loop has no start-up either.
        runner.fill(SLOTS * 4, seconds=seconds)
        wait_until(lambda: worker.check() and len(starts) >= SLOTS * 4, "the first naps", within=60)
        wait_until(runner.is_done, "the end of the first naps", within=60)
        starts.forget()
        # And all naps wait before one begins: a bare loop has no caller beside it that submits.
        with runner.held_back():
            runner.fill(jobs, seconds=seconds)
        wait_until(lambda: worker.check() and len(starts) >= jobs, "the start of every nap")
        wait_until(runner.is_done, "the end of every nap")
        done_at = time.monotonic_ns()
    return jobs / (done_at - starts.read()[0][0]) * 1e9


async def _bare_tasks(nap: Any, jobs: int, seconds: float) -> float:
    numbers = iter(range(jobs))
    began = time.monotonic()
    await asyncio.gather(*(_bare_task(nap, numbers, seconds) for _ in range(SLOTS)))
    return jobs / (time.monotonic() - began)


async def _bare_task(nap: Any, numbers: Iterator[int], seconds: float) -> None:
    for n in numbers:
        await nap(n, seconds)


def _bare_processes(nap: Any, starts: Starts, jobs: int, seconds: float) -> float:
    context = multiprocessing.get_context("fork")
    together = context.Barrier(SLOTS)
    ended = context.Queue()
    processes = [
        context.Process(target=_bare_process, args=(nap, together, ended, jobs // SLOTS, seconds)) for _ in range(SLOTS)
    ]
    for process in processes:
        process.start()
    last = max(ended.get() for _ in processes)
    for process in processes:
        process.join()
    began = starts.read()
    return len(began) / (last - began[0][0]) * 1e9


def _bare_process(nap: Any, together: Any, ended: Any, jobs: int, seconds: float) -> None:
    together.wait()
    for n in range(jobs):
        nap(n, seconds)
    ended.put(time.monotonic_ns())

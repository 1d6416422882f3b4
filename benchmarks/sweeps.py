"""A large sweep: how fast it is submitted, in how much memory, and how soon its figures are shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.submits import opened
from benchmarks.watch import Timed, warm_up

LOOKS = 5
SAMPLE_INTERVAL = 0.02  # seconds


def sweep(store: str, place: Path, jobs: int) -> Timed:
    """Points a second, of a grid of one column. `runs ms` is what a list of all runs takes beside those jobs, `again
    ms` the same sweep a second time, and `growth MiB` how far memory rose above that of the sweep of a fifth before."""
    timed = Timed(jobs=jobs)
    with opened(store, place) as (app, task):
        with _peak() as small:
            app.sweep(task, {"n": range(warm_up(jobs))}, name="warm up")
        with _peak() as large, timed.timing():
            run = app.sweep(task, {"n": range(jobs)}, name="large")
        info = run.info()
        assert (info.total, info.unfinished) == (jobs, jobs)
        timed.parts = {
            "runs ms": median(_milliseconds(app.runs) for _ in range(LOOKS)),
            "again ms": _milliseconds(lambda: app.sweep(task, {"n": range(jobs)}, name="large")),
            "peak MiB": max(large),
            "growth MiB": max(large) - max(small),
        }
    return timed


def _milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


@contextmanager
def _peak() -> Iterator[list[float]]:
    """The memory of this process in MiB, from now on, without what it shares with files."""
    found, stop = [_memory()], threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_INTERVAL):
            found.append(_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()


def _memory() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0

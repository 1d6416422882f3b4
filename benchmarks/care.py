"""What a worker costs while it has nothing to do, how soon another takes over, and what an import costs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.apps import counted
from benchmarks.starts import PLACE, Starts, wait_until
from benchmarks.watch import Timed
from benchmarks.workers import Ours, Process

RUNS_FOR = 120.0
IMPORT = "import time; t = time.perf_counter(); import daybreak; print(time.perf_counter() - t)"


def recover(place: Path, jobs: int) -> Timed:
    """Kill a worker that runs a job, while another is alive, at a random moment between two of its heartbeats."""
    took = [_recover(place / str(n)) for n in range(jobs)]
    return Timed(figure=sorted(took)[len(took) // 2], parts={"worst": max(took)})


def _recover(place: Path) -> float:
    place.mkdir()
    os.environ[PLACE] = str(place)
    starts = Starts(place)
    ours = Ours(place, "coro", "long_at_first")
    ours.app.use(f"sqlite:///{place / 'daybreak.db'}")
    with ours.work(name="first") as first:
        ours.task.submit(1, RUNS_FOR)
        wait_until(lambda: first.check() and len(starts) == 1, "the start of the job", within=60)
        with ours.work(name="second") as second:
            wait_until(lambda: second.check() and _workers(ours) == 2, "the second worker", within=60, every=0.05)
            time.sleep(3 + random.random() * 3)
            first.kill()
            killed_at = time.monotonic_ns()
            wait_until(lambda: second.check() and len(starts) == 2, "the second start", within=180)
    ours.app.close()
    return (starts.read()[1][0] - killed_at) / 1e9


def _workers(ours: Ours) -> int:
    async def count() -> int:
        return len(await (await ours.app.client()).store.records("worker"))

    return ours.app.portal.run(count())


# -- at rest -----------------------------------------------------------------------------------------------------------


def rest(place: Path, jobs: int) -> Timed:
    """Percent of one core over `jobs` seconds, of the worker and its children; then what a second such worker asks."""
    ours = Ours(place, "both", "noop")
    try:
        with ours.work() as worker:
            percent = _percent_of_a_core(_settled(ours, worker), jobs)
        command = [sys.executable, "-m", "benchmarks.apps.counted", "benchmarks.apps.ours:both"]
        with Process(command, place, "counted") as worker:
            _settled(ours, worker)
            before = counted.read(place)
            time.sleep(jobs)
            after = counted.read(place)
    finally:
        ours.app.close()
    return Timed(figure=percent, parts={kind: (after[kind] - before[kind]) / jobs for kind in counted.KINDS})


def _settled(ours: Ours, worker: Process) -> int:
    """Its process id, once it has worked and calmed down."""
    starts = Starts(ours.place)
    starts.forget()
    for task in ("noop", "plain_noop"):
        ours.app.find_task(task).submit(1)
    wait_until(lambda: worker.check() and len(starts) == 2, "the first jobs", within=60)
    time.sleep(3)
    return worker.pid


def _percent_of_a_core(pid: int, seconds: float) -> float:
    processes = [pid, *_descendants(pid)]
    before = sum(map(_cpu_seconds, processes))
    time.sleep(seconds)
    return (sum(map(_cpu_seconds, processes)) - before) / seconds * 100


def _descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text(encoding="utf-8").split()]
    return [*children, *(one for child in children for one in _descendants(child))]


def _cpu_seconds(pid: int) -> float:
    """To the nanosecond: an idle worker takes less than a tick of the usual clock."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="utf-8").split()[0]) for task in tasks) / 1e9


# -- importing ---------------------------------------------------------------------------------------------------------


def imported(place: Path, jobs: int) -> Timed:
    """The best of ten fresh processes, in milliseconds, compiled beforehand."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    surroundings["PYTHONPYCACHEPREFIX"] = str(place / "compiled")
    took = [
        float(subprocess.run([sys.executable, "-c", IMPORT], env=surroundings, capture_output=True, check=True).stdout)
        for _ in range(1 + jobs)
    ]
    return Timed(figure=min(took[1:]) * 1000, parts={"median": sorted(took[1:])[jobs // 2] * 1000})

"""The cost of an idle worker, the time of a takeover, and the cost of an import."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.processes import Process, cpu_seconds
from benchmarks.starts import PLACE, Starts, wait_until
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours

RUNS_FOR = 120.0
IMPORT = "import time; t = time.perf_counter(); import daybreak; print(time.perf_counter() - t)"


def recover(store: str, place: Path, jobs: int) -> Timed:
    """Kill a worker that runs a job, while another is alive, at a random moment between two of its heartbeats."""
    took = [_recover(store, place / str(n)) for n in range(jobs)]
    return Timed(figure=sorted(took)[len(took) // 2], parts={"worst": max(took)})


def _recover(store: str, place: Path) -> float:
    place.mkdir()
    os.environ[PLACE] = str(place)
    starts = Starts(place)
    with ours(store, place, "coro", "long_at_first") as runner, runner.work(name="first") as first:
        runner.task.submit(1, RUNS_FOR)
        wait_until(lambda: first.check() and len(starts) == 1, "the start of the job", within=60)
        with runner.work(name="second") as second:
            wait_until(lambda: second.check() and runner.workers() == 2, "the second worker", within=60, every=0.05)
            time.sleep(3 + random.random() * 3)
            first.kill()
            killed_at = time.monotonic_ns()
            wait_until(lambda: second.check() and len(starts) == 2, "the second start", within=180)
    return (starts.read()[1][0] - killed_at) / 1e9


# -- at rest -----------------------------------------------------------------------------------------------------------


def rest(store: str, place: Path, jobs: int) -> Timed:
    """Percent of one core over `jobs` seconds, of the worker and its children, and what it asks of its store."""
    with ours(store, place, "both", "noop", counting=True) as runner:
        with runner.work() as worker:
            pid = _settled(runner, worker)
            before = runner.server.counts()
            percent = _percent_of_a_core(pid, jobs)
            after = runner.server.counts()
        asked = {kind: (after[kind] - before[kind]) / jobs for kind in after} or _counted(runner, place, jobs)
        return Timed(figure=percent, parts=asked, facts=runner.facts())


def _counted(runner: Ours, place: Path, seconds: int) -> dict[str, float]:
    """Of SQLite, where there is nobody to ask: what a second such worker, which counts, asks for."""
    from benchmarks.apps import counted

    command = [sys.executable, "-m", "benchmarks.apps.counted", "benchmarks.apps.ours:both"]
    with Process(command, place, "counted") as worker:
        _settled(runner, worker)
        before = counted.read(place)
        time.sleep(seconds)
        after = counted.read(place)
    return {kind: (after[kind] - before[kind]) / seconds for kind in counted.KINDS}


def _settled(runner: Ours, worker: Process) -> int:
    """Its process id, once it has worked and calmed down, and is alone with its store."""
    starts = Starts(runner.place)
    starts.forget()
    for task in ("noop", "plain_noop"):
        runner.app.find_task(task).submit(1)
    wait_until(lambda: worker.check() and len(starts) == 2, "the first jobs", within=60)
    runner.close()
    time.sleep(20)  # and has told what it has seen of its connections, the last made at its first look unasked
    return worker.pid


def _percent_of_a_core(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds * 100


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

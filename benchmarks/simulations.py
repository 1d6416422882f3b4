"""Sixteen simulations in four ways: one by one, in naive threads, in one batch call, and as jobs of a batch task.

`python -m benchmarks.simulations` starts the stand-in of PLECS in a process of its own. A simulation costs what it
computes: nothing sleeps. The ratios are what counts, because the stand-in is not PLECS."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from daybreak import Daybreak, File
from daybreak.adapters.plecs import PLECS_RETRY, Plecs, PlecsBusy, PlecsError, plecs_resource

COUNT = 16
THREADS = 4
STARTED = "PLECS" in os.environ
ADDRESS = os.environ.get("PLECS", "http://127.0.0.1:1080/RPC2")
SOLVER = {"TimeSpan": float(os.environ.get("DAYBREAK_SPAN", "0.2")), "OutputTimes": [0.001, 0.002]}
MODEL = "Vi = 24;\nduty = 0.5;\nR = 1;\n"
app = Daybreak(os.environ.get("DAYBREAK_URL", "memory://"))
plecs = Plecs(ADDRESS, timeout="10m")


@dataclass(frozen=True)
class Point:
    model: File
    vin: float


@app.batch_task(size=COUNT, resource=plecs_resource(ADDRESS), retry=PLECS_RETRY)
def simulate(points: list[Point]) -> list[float | PlecsError]:
    """Each result is how many seconds the call took."""
    start = time.perf_counter()
    name = plecs.load_by_content(points[0].model.path)
    found = plecs.simulate_batch(name, [{"Vi": point.vin} for point in points], solver=SOLVER)
    took = time.perf_counter() - start
    return [one if isinstance(one, PlecsError) else took for one in found]


@app.task(resource=plecs_resource(ADDRESS), retry=PLECS_RETRY)
def simulate_one(model: File, vin: float) -> float:
    return plecs.simulate(plecs.load_by_content(model.path), {"Vi": vin}, solver=SOLVER).final[0]


# -- the ways ----------------------------------------------------------------------------------------------------------


def one_by_one(name: str, volts: list[float]) -> None:
    for vin in volts:
        plecs.simulate(name, {"Vi": vin}, solver=SOLVER)


def naive_threads(name: str, volts: list[float]) -> None:
    """A few threads, each with its share; a refused call is tried again after a short random wait."""

    def work(share: list[float]) -> None:
        for vin in share:
            while True:
                try:
                    plecs.simulate(name, {"Vi": vin}, solver=SOLVER)
                    break
                except PlecsBusy:
                    time.sleep(random.uniform(0.01, 0.05))

    threads = [threading.Thread(target=work, args=(volts[n::THREADS],)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def batch_call(name: str, volts: list[float]) -> None:
    found = plecs.simulate_batch(name, [{"Vi": vin} for vin in volts], solver=SOLVER)
    assert not any(isinstance(one, PlecsError) for one in found)


def jobs_of_a_batch_task(model: File, volts: list[float]) -> float:
    """How many seconds of it were not in the function."""
    start = time.perf_counter()
    handles = simulate.submit_many([Point(model, vin) for vin in volts])
    inside = {handle.result(timeout="5m") for handle in handles}
    assert len(inside) == 1, "it was not one call"
    return time.perf_counter() - start - inside.pop()


def jobs_one_by_one(model: File, volts: list[float]) -> None:
    handles = simulate_one.submit_many([{"model": model, "vin": vin} for vin in volts])
    assert len([handle.result(timeout="5m") for handle in handles]) == len(volts)


def measure(rounds: int, *, only_overhead: bool) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of each way, the ways in turns; and what was outside of the function of the batch task."""
    outside: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.plecs"
        path.write_text(MODEL, encoding="utf-8")
        model = File(path)
        name = plecs.load_by_content(path)
        ways: dict[str, Callable[[list[float]], None]] = {
            "one by one": lambda volts: one_by_one(name, volts),
            f"{THREADS} naive threads": lambda volts: naive_threads(name, volts),
            "one batch call": lambda volts: batch_call(name, volts),
            "jobs of a batch task": lambda volts: outside.append(jobs_of_a_batch_task(model, volts)),
            "jobs one by one": lambda volts: jobs_one_by_one(model, volts),
        }
        if only_overhead:
            ways = {way: ways[way] for way in ("one batch call", "jobs of a batch task")}
        took: dict[str, list[float]] = {way: [] for way in ways}
        with app.worker(processes=1):
            simulate.submit(Point(model, 12.0)).result(timeout="1m")
            simulate_one.submit(model, 12.0).result(timeout="1m")
            batch_call(name, [float(12 + n) for n in range(COUNT)])  # the stand-in starts its processes
            for number in range(rounds):
                volts = [10.0 + number + n / COUNT for n in range(COUNT)]
                for way, run in ways.items():
                    start = time.perf_counter()
                    run(volts)
                    took[way].append(time.perf_counter() - start)
    return took, outside


def report(took: dict[str, list[float]], outside: list[float], cores: int) -> str:
    middle = {way: median(seconds) for way, seconds in took.items()}
    base = next(iter(middle.values()))
    pairs = list(zip(took["jobs of a batch task"], took["one batch call"], strict=True))
    lines = [
        f"| {COUNT} simulations, {cores} cores | seconds, median of {len(pairs)} | speedup |",
        "|---|---|---|",
    ]
    lines += [f"| {way} | {seconds:.2f} | {base / seconds:.2f} |" for way, seconds in middle.items()]
    lines.append("")
    ratios = [100 * (jobs / call - 1) for jobs, call in pairs]
    share = 100 * median(outside) / middle["one batch call"]
    told = ", ".join(f"{ratio:+.1f}" for ratio in ratios)
    lines.append(f"Jobs of a batch task beside the direct call: {median(ratios):+.1f} % (median of {told}).")
    lines.append(f"Outside of the function: {1000 * median(outside):.0f} ms, {share:.1f} % of the direct call.")
    return "\n".join(lines)


@contextmanager
def stand_in(cores: int) -> Iterator[str]:
    """The stand-in of PLECS in a process of its own."""
    command = [sys.executable, "-m", "daybreak.adapters.plecs.stand_in", "--port", "0", "--cores", str(cores)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[0]
        finally:
            process.terminate()


def main() -> int:
    options = argparse.ArgumentParser("python -m benchmarks.simulations", description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--overhead", action="store_true", help="only the batch call, directly and by jobs")
    options.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the stand-in (all)")
    given = options.parse_args()
    if STARTED:
        print(report(*measure(given.rounds, only_overhead=given.overhead), given.cores))
        return 0
    # Children import this module, so it is run again with the address in its environment.
    with stand_in(given.cores) as address, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PLECS": address, "DAYBREAK_URL": f"sqlite:///{folder}/jobs.db"}
        command = [sys.executable, "-m", "benchmarks.simulations", *sys.argv[1:]]
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

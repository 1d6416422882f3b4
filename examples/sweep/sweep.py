"""A sweep over duty cycle and load. It can be killed and started again at any time. Writes ripple.csv."""

import csv
import sys
from itertools import product
from pathlib import Path

import buck

from daybreak import Daybreak

app = Daybreak()

DUTIES = [n / 10 for n in range(1, 10)]
LOADS = [0.5, 1.0, 2.0, 5.0]


@app.task(retry=3, timeout="1m")
def simulate(duty: float, load: float) -> dict[str, float]:
    return buck.start_up(duty, load)


def submit(name: str) -> list:
    """Submit one job for each point. The key makes it the same job, however often this is called with one name."""
    points = product(DUTIES, LOADS)
    return [simulate.using(key=f"{name} {duty} {load}", tags=[name]).submit(duty, load) for duty, load in points]


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "sweep"
    jobs = submit(name)
    with app.worker():
        for done, _ in enumerate(app.as_completed(jobs), 1):
            print(f"\r{done} of {len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return write(jobs, Path("ripple.csv"))


def write(jobs: list, path: Path) -> int:
    """Write one row for each point. Returns 1 if a point failed; its row says why."""
    failed = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["duty", "load", "vout", "ripple", "overshoot", "error"])
        for (duty, load), job in zip(product(DUTIES, LOADS), jobs, strict=True):
            outcome = job.outcome()
            if outcome.ok:
                found = outcome.result
                row = (found["vout"], found["ripple"], found["overshoot"])
                table.writerow([duty, load, *(f"{value:.4f}" for value in row), ""])
            else:  # failed or cancelled
                failed += 1
                table.writerow([duty, load, "", "", "", outcome.error or outcome.state])
                print(outcome)
    print(f"{path}: {len(jobs)} points, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

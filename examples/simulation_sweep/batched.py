"""The sweep in the batch calls of PLECS: up to 16 points in one call, which PLECS spreads over its cores.

python batched.py                 all points; batched.csv has a row for each
python batched.py --points 64     fewer
"""

import argparse
import os
import sys
from dataclasses import dataclass

from daybreak import Daybreak, File
from daybreak.adapters.plecs import PLECS_RETRY, Plecs, PlecsError, plecs_cache, plecs_resource

ADDRESS = os.environ.get("PLECS", "http://127.0.0.1:1080/RPC2")
PERIOD = 10  # points per switching period, in what the stand-in answers
app = Daybreak("batched.db")
plecs = Plecs(ADDRESS, timeout=os.environ.get("PLECS_TIMEOUT", "1m"))


@dataclass(frozen=True)
class Point:
    model: File
    vin: float
    duty: float


def summary(volts: list[float]) -> dict[str, float]:
    last = volts[-PERIOD:]
    return {"vout": sum(last) / PERIOD, "ripple": max(last) - min(last), "peak": max(volts)}


# Points of one model share a call: without `by`, the content of the first File decides. A point that
# is known is not simulated again: its model, its numbers, this code and the version of PLECS decide.
@app.batch_task(
    size=16,
    resource=plecs_resource(ADDRESS),
    retry=PLECS_RETRY,
    priority="low",
    cache=plecs_cache(plecs, salt=summary),
)
def simulate(points: list[Point]) -> list[dict[str, float] | PlecsError]:
    name = plecs.load_by_content(points[0].model.path)
    found = plecs.simulate_batch(name, [{"Vi": point.vin, "duty": point.duty} for point in points])
    # A point that failed is answered by its error, and fails alone.
    return [one if isinstance(one, PlecsError) else summary(one.signals[0]) for one in found]


def main() -> int:
    options = argparse.ArgumentParser(description="A sweep in batch calls of PLECS.")
    options.add_argument("--points", type=int, default=1000, help="how many (1000)")
    given = options.parse_args()
    rows = [{"vin": 10.0 + point // 10, "duty": round(0.05 + 0.09 * (point % 10), 2)} for point in range(given.points)]
    run = app.sweep(simulate, rows=rows, fixed={"model": File("buck.plecs")}, name=f"batched-{given.points}")
    with app.worker(processes=1):
        run.wait(progress=True)
    run.to_csv("batched.csv")
    failed = sum(run.info().failed.values())
    print(f"batched.csv: {given.points} points, {failed} failed")
    [calls] = app.stats().batch_calls
    print(f"{calls.calls} calls, {calls.average_size:.1f} points each")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The article's overnight sweep: 1,000 operating points of a converter on one PLECS. Kill anything, and start it again.

python overnight.py               all points; overnight.csv has a row for each
python overnight.py --points 50   fewer
python overnight.py --urgent 24   one point that overtakes the sweep, from another terminal
"""

import argparse
import os
import sys

from daybreak import Daybreak, File
from daybreak.adapters.plecs import PLECS_RETRY, Plecs, plecs_cache, plecs_resource

ADDRESS = os.environ.get("PLECS", "http://127.0.0.1:1080/RPC2")
PERIOD = 10  # points per switching period, in what the stand-in answers
app = Daybreak("overnight.db")
plecs = Plecs(ADDRESS, timeout=os.environ.get("PLECS_TIMEOUT", "1m"))


@app.task(resource=plecs_resource(ADDRESS), retry=PLECS_RETRY, priority="low", cache=plecs_cache(plecs))
def simulate(model: File, vin: float, duty: float) -> dict[str, float]:
    name = plecs.load_by_content(model.path)  # the content that was submitted, whatever became of the file
    volts, _ = plecs.simulate(name, {"Vi": vin, "duty": duty}).signals
    last = volts[-PERIOD:]
    return {"vout": sum(last) / PERIOD, "ripple": max(last) - min(last), "peak": max(volts)}


def main() -> int:
    options = argparse.ArgumentParser(description="An overnight sweep on one PLECS.")
    options.add_argument("--points", type=int, default=1000, help="how many (1000)")
    options.add_argument("--urgent", type=float, metavar="VIN", help="one point, before all others")
    given = options.parse_args()
    if given.urgent is not None:
        print(simulate.using(priority="critical").submit(File("buck.plecs"), given.urgent, 0.5).result())
        return 0
    rows = [{"vin": 10.0 + point // 10, "duty": round(0.05 + 0.09 * (point % 10), 2)} for point in range(given.points)]
    run = app.sweep(simulate, rows=rows, fixed={"model": File("buck.plecs")}, name=f"overnight-{given.points}")
    with app.worker(processes=2):
        run.wait(progress=True)
    run.to_csv("overnight.csv")
    failed = sum(run.info().failed.values())
    print(f"overnight.csv: {given.points} points, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

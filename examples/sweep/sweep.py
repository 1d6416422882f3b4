"""A sweep over duty cycle and load. It can be killed and started again at any time. Writes ripple.csv."""

import sys

import buck

from daybreak import Daybreak

app = Daybreak()

DUTIES = [n / 10 for n in range(1, 10)]
LOADS = [0.5, 1.0, 2.0, 5.0]


@app.task(retry=3, timeout="1m")
def simulate(duty: float, load: float) -> dict[str, float]:
    return buck.start_up(duty, load)


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else "sweep"
    run = app.sweep(simulate, {"duty": DUTIES, "load": LOADS}, name=name)
    with app.worker():
        run.wait(progress=sys.stderr.isatty())
    run.to_csv("ripple.csv")
    failed = [row for row in run.rows() if row["state"] != "completed"]
    for row in failed:
        print(f"duty {row['duty']}, load {row['load']}: {row['error'] or row['state']}")
    print(f"ripple.csv: {run.info().total} points, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

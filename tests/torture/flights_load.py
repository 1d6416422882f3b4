"""The app of test_flights.py: a cached task that says when it runs. As a program it submits the same job many times at
once: `flights_load.py URL COUNT POINT`, and prints the ids."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from worker_processes import LINES, write_line

from daybreak import Cache, Context, Daybreak, Retry

app = Daybreak()


# Whatever dies, the job is not to blame: it must end completed.
@app.task(cache=Cache(version="1"), retry=Retry(attempts=10_000), deaths=10_000)
def simulate(ctx: Context, point: int) -> dict[str, int]:
    """Runs until the file that the test makes is there."""
    write_line(word="began", job=ctx.job, fence=ctx.fence, point=point)
    while not finish_file(point).exists() and not ctx.cancelled:
        time.sleep(0.01)
    return {"point": point}


def finish_file(point: int) -> Path:
    return Path(f"{os.environ[LINES]}-{point}")


def main(url: str, count: int, point: int) -> None:
    app.use(url)
    app.count()  # connected before the word is given
    print("ready", flush=True)
    sys.stdin.readline()
    jobs = simulate.submit_many([{"point": point}] * count)
    print(*(job.id for job in jobs), flush=True)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

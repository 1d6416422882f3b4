"""Cached tasks for tests with real workers. Each run leaves a line in a file."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from daybreak import Cache, Context, Daybreak, Resource

FOLDER = "DAYBREAK_TEST_FOLDER"
app = Daybreak("memory://", name="cached")
licence = Resource("licence", slots=1)


def told(line: object) -> None:
    with (Path(os.environ[FOLDER]) / "runs").open("a") as file:
        file.write(f"{line}\n")


def runs() -> list[str]:
    file = Path(os.environ[FOLDER]) / "runs"
    return file.read_text().split() if file.exists() else []


@app.task(cache=True, resource=licence)
def simulate(n: int) -> int:
    told(n)
    return 2 * n


@app.task(cache=True, retry=3)
def flaky(ctx: Context, good_at: int) -> int:
    told(ctx.attempt)
    if ctx.attempt < good_at:
        raise ConnectionError("not yet")
    return ctx.attempt


@app.task(cache=True)
def slow(ctx: Context, name: str) -> str:
    """Runs until the file `name` is there, or the job is cancelled."""
    told(os.getpid())
    while not (Path(os.environ[FOLDER]) / name).exists() and not ctx.cancelled:
        time.sleep(0.01)
    return name


@app.task(cache=Cache(size="4KiB"))
def large(n: int) -> str:
    told(n)
    return "x" * 1500


@app.task(resource=licence)
def hold(name: str) -> None:
    while not (Path(os.environ[FOLDER]) / name).exists():
        time.sleep(0.01)


def main() -> None:
    """Submit the same job many times, and print how often the result came. For a process of its own."""
    url, n, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    app.use(url)
    jobs = [simulate.submit(n) for _ in range(count)]
    print(sum(job.result("60s") == 2 * n for job in jobs), flush=True)
    app.close()


if __name__ == "__main__":
    main()

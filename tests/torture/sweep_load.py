"""The sweep that is tortured. As a program it is the command that a user runs again and again: `sweep_load.py RUN
MODEL`."""

from __future__ import annotations

import sys
import time
from typing import Any

from player_processes import count
from worker_processes import write_line

from daybreak import Context, Daybreak, File, Resource, Retry

POINTS = count(60, 300)

app = Daybreak()
LICENCE = Resource("licence", slots=4)


# Whatever dies, the point is not to blame: each must end completed.
@app.task(retry=Retry(attempts=10_000), deaths=10_000, resource=LICENCE)
def point(ctx: Context, x: int, model: File) -> dict[str, float]:
    """Appends its effect under its fence: whoever reads the file takes the line of the accepted fence."""
    time.sleep(0.002)
    write_line(word="effect", run=ctx.run, job=ctx.job, fence=ctx.fence, x=x)
    return {"y": x * float(model.path.read_text())}


def grid(model: str) -> dict[str, Any]:
    return {"x": range(POINTS), "model": File(model)}


def main(name: str, model: str) -> None:
    print("ready", flush=True)
    run = app.sweep(point, grid(model), name=name)
    print("submitted", flush=True)
    info = run.wait()
    print(f"{info.state} {info.done} of {info.total}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

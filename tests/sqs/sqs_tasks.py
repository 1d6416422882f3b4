"""Tasks for the tests of the SQS transport."""

from __future__ import annotations

import time
from pathlib import Path

from daybreak import Context, Daybreak, Transient

app = Daybreak("memory://")


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.batch_task(size=8, retry=1)
def halves(items: list[int]) -> list[float | Exception]:
    return [item / 2 if item else ValueError("no half of nothing") for item in items]


@app.task
def echo(text: str) -> str:
    return text


@app.task
def nap(ctx: Context, seconds: float, file: str) -> int:
    """Sleep in small steps, so that it can be stopped, and write that it began and ended."""
    with Path(file).open("a") as lines:
        lines.write(f"began {ctx.job} {ctx.fence} {ctx.meta['delivery']}\n")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ctx.progress(min(1.0, max(0.0, 1 - (until - time.monotonic()) / seconds)))
        if ctx.cancelled:
            break
        time.sleep(0.02)
    with Path(file).open("a") as lines:
        lines.write(f"ended {ctx.job} {ctx.fence} {ctx.meta['delivery']}\n")
    return ctx.fence


@app.task
def count_up(ctx: Context, to: int, file: str) -> int:
    """One step after another, each in a checkpoint."""
    done = ctx.state or 0
    while done < to:
        time.sleep(0.05)
        done += 1
        with Path(file).open("a") as lines:
            lines.write(f"{done}\n")
        ctx.checkpoint(done)
    return done


@app.task(retry=3)
def flaky(file: str) -> str:
    """Fails once, as a server does that is down."""
    if not Path(file).exists():
        Path(file).write_text("failed")
        raise Transient("the recogniser is down", retry_after="1s")
    return "done"


@app.task(retry=3)
def pod(ctx: Context, file: str) -> str:
    """Goes on elsewhere."""
    with Path(file).open("a") as lines:
        lines.write(f"began {ctx.job} {ctx.fence} {ctx.meta['delivery']}\n")
    return ctx.detach(deadline="1h")

"""Batch tasks of the workers under test. Each call writes a line with its items."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from worker_processes import write_line

from daybreak import Context, Daybreak, Resource, Retry

app = Daybreak()
SOON = Retry(strategy="fixed", delay=timedelta(milliseconds=50))
licence = Resource("licence", slots=1)
around: list[str] = []


@app.wrap
def wrapped(ctx: Context):
    around.append(ctx.job)
    yield


def tell(ctx: Context, items: list[int], word: str = "call") -> None:
    write_line(job=ctx.job, jobs=list(ctx.jobs), word=word, items=items)


@app.batch_task(size=8, retry=SOON)
def square(ctx: Context, items: list[int]) -> list[int | Exception]:
    tell(ctx, items)
    if 13 in items:
        raise ValueError("13 is poison")
    return [ValueError(f"{item} is below 0") if item < 0 else item * item for item in items]


@app.batch_task(size=8, retry=SOON)
async def asquare(ctx: Context, items: list[int]) -> list[int]:
    tell(ctx, items)
    await asyncio.sleep(0.01)
    if 13 in items:
        raise ValueError("13 is poison")
    return [item * item for item in items]


@app.batch_task(size=8, retry=SOON)
def kill_alone(ctx: Context, items: list[int]) -> list[int]:
    """Raises with 13 among others; 13 alone kills the process, but only the first time."""
    tell(ctx, items)
    if 13 in items:
        if len(items) > 1:
            raise ValueError("13 is among them")
        if first(ctx, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)
    return items


@app.batch_task(size=8, retry=SOON)
def kill_together(ctx: Context, items: list[int]) -> list[int]:
    """Kills the process at first."""
    tell(ctx, items)
    if first(ctx, "killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    return items


@app.batch_task(size=8, retry=SOON, timeout="500ms")
def slow_alone(ctx: Context, items: list[int]) -> list[int]:
    """Raises with 13 among others; 13 alone exceeds the time limit, but only the first time."""
    tell(ctx, items)
    if 13 in items:
        if len(items) > 1:
            raise ValueError("13 is among them")
        if first(ctx, "slow"):
            time.sleep(60)
    time.sleep(0.3)  # three such calls take longer than one may
    return items


@app.batch_task(size=8, retry=SOON, timeout="300ms")
async def aslow(ctx: Context, items: list[int]) -> list[int]:
    tell(ctx, items)
    if first(ctx, "slow"):
        await asyncio.sleep(60)
    return items


@app.batch_task(size=8, retry=SOON, hang="1s")
def silent(ctx: Context, items: list[int]) -> list[int]:
    tell(ctx, items)
    if first(ctx, "silent"):
        time.sleep(60)
    return items


@app.batch_task(size=4, retry=SOON)
def wait_for(ctx: Context, items: list[str]) -> list[str]:
    """Waits until the file that the first item names is there, or until it is asked to stop."""
    tell(ctx, [])
    while not Path(items[0]).exists():
        if ctx.cancelled:
            tell(ctx, [], "asked to stop")
            raise RuntimeError("asked to stop")
        time.sleep(0.005)
    tell(ctx, [], "ended")
    return items


@app.batch_task(size=4, retry=SOON)
async def await_for(ctx: Context, items: list[str]) -> list[str]:
    tell(ctx, [])
    try:
        while not Path(items[0]).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        tell(ctx, [], "asked to stop")
        raise
    return items


@app.batch_task(size=4, by=lambda item: item[0], resource=licence)
def licensed(ctx: Context, items: list[tuple[str, int]]) -> list[str]:
    tell(ctx, [number for _, number in items], "began")
    time.sleep(0.02)
    tell(ctx, [number for _, number in items], "ended")
    return [f"{model}{number}" for model, number in items]


@app.batch_task(size=3, linger="20s")
def patient(ctx: Context, items: list[int]) -> list[int]:
    tell(ctx, items)
    return items


@app.batch_task(size=3, linger="500ms")
def briefly(ctx: Context, items: list[int]) -> list[int]:
    tell(ctx, items)
    return items


@app.batch_task(size=8)
def facts(ctx: Context, items: list[int]) -> list[dict[str, object]]:
    ctx.log.info("a call of %d", len(items))
    print("printed")
    ctx.progress(0.5, "half way")
    (ctx.scratch / "file").touch()
    time.sleep(0.4)  # so that the progress is written before the end
    return [{"jobs": list(ctx.jobs), "wrapped": list(around), "shared": hasattr(ctx.shared, "x")} for _ in items]


@app.task
def plain(ctx: Context) -> float:
    write_line(job=ctx.job, word="plain")
    return time.monotonic()


def first(ctx: Context, word: str) -> bool:
    """Whether this is the first time in this folder."""
    path = Path(os.environ["BATCH_MARKS"]) / word
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        return True
    return False

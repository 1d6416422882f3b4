"""The app that workers are tortured with: jobs that say what they did, and jobs that do nothing."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from worker_processes import write_line

from daybreak import Context, Daybreak, Retry

app = Daybreak()

# Whatever dies, the job is not to blame here: each must end completed.
STUBBORN = {"retry": Retry(attempts=10_000), "deaths": 10_000}


@app.task(queue="sync", **STUBBORN)
def effect(ctx: Context, seconds: float) -> int:
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    time.sleep(seconds)
    write_line(job=ctx.job, fence=ctx.fence, word="did")
    return ctx.fence


@app.task(queue="async", **STUBBORN)
async def aeffect(ctx: Context, seconds: float) -> int:
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    await asyncio.sleep(seconds)
    write_line(job=ctx.job, fence=ctx.fence, word="did")
    return ctx.fence


@app.task(queue="async", **STUBBORN)
async def aeffect_after(ctx: Context, deaths: int, seconds: float) -> int:
    """Does not end by itself before its worker died so often."""
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    await asyncio.sleep(seconds if ctx.attempt > deaths else 3600)
    write_line(job=ctx.job, fence=ctx.fence, word="did")
    return ctx.fence


@app.task(queue="async", retry=Retry(attempts=3, delay=timedelta(milliseconds=50)))
async def await_file_and_stumble(ctx: Context, path: str) -> int:
    """Fails once when the file is there, and then no more."""
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    stumbled = Path(f"{path}-{ctx.job}")
    if not stumbled.exists():  # noqa: ASYNC240
        stumbled.touch()  # noqa: ASYNC240
        raise ConnectionError("not now")
    return ctx.fence


@app.task(queue="sync", timeout="200ms", retry=Retry(attempts=2, delay=timedelta(milliseconds=100)), deaths=10_000)
def limited(ctx: Context, seconds: float) -> int:
    """May be too long for its limit."""
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    time.sleep(seconds)
    write_line(job=ctx.job, fence=ctx.fence, word="did")
    return ctx.fence


@app.task(queue="async", timeout="200ms", retry=Retry(attempts=2, delay=timedelta(milliseconds=100)), deaths=10_000)
async def alimited(ctx: Context, seconds: float) -> int:
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    await asyncio.sleep(seconds)
    write_line(job=ctx.job, fence=ctx.fence, word="did")
    return ctx.fence


@app.task(queue="sync", keep="1s")
def nothing(n: int) -> int:
    return n


@app.task(queue="async", keep="1s")
async def anothing(n: int) -> int:
    return n

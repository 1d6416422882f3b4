"""The tasks by which the acceptance cases are shown. What ran, in which order, stands in a file of lines."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from worker_processes import write_line

from daybreak import Context, Daybreak, Permanent, Retry, Transient

app = Daybreak()

GROWING = Retry(strategy="exponential", attempts=3, delay=timedelta(milliseconds=200), factor=2.0)


def tell(ctx: Context, word: str, **facts: object) -> None:
    write_line(job=ctx.job, task=ctx.task, queue=ctx.queue, attempt=ctx.attempt, word=word, **facts)


@app.task
def note(ctx: Context, n: int = 0) -> int:
    """Says that it runs, and which one it is."""
    tell(ctx, "ran", n=n)
    return n


@app.task
def unheard_of(n: int) -> int:
    """Nobody has waited for one of these before."""
    return n


@app.task
def work(ctx: Context, seconds: float, n: int = 0) -> int:
    tell(ctx, "began", n=n)
    time.sleep(seconds)
    tell(ctx, "ended", n=n)
    return n


@app.task
def wait_for(ctx: Context, gate: str) -> str:
    tell(ctx, "began")
    while not Path(gate).exists():
        time.sleep(0.005)
    tell(ctx, "ended")
    return gate


@app.task(retry=GROWING)
def stumble(ctx: Context, times: int) -> int:
    tell(ctx, "began")
    if ctx.attempt <= times:
        raise Transient("not yet")
    return ctx.attempt


@app.task(retry=5)
def refuse(ctx: Context) -> None:
    tell(ctx, "began")
    raise Permanent("this can never be")


@app.task(retry=1)
def crash(ctx: Context) -> None:
    tell(ctx, "began")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=1)
def fail(ctx: Context) -> None:
    tell(ctx, "began")
    raise ValueError("as told")


@app.task
def watch_for_cancel(ctx: Context) -> str:
    tell(ctx, "began")
    while not ctx.cancelled:
        time.sleep(0.005)
    return "left early"

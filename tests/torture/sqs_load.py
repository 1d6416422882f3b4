"""Tasks for the torture of the SQS transport."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from daybreak import Context, Daybreak

app = Daybreak("memory://")


def _say(line: str) -> None:
    with Path(os.environ["SQS_LINES"]).open("a") as lines:
        lines.write(line + "\n")


@app.task(deaths=1000)  # the workers are killed from outside: that is never the fault of a job
async def transcribe(ctx: Context, seconds: float) -> str:
    _say(f"began {ctx.job} {ctx.fence}")
    await asyncio.sleep(seconds)
    _say(f"ended {ctx.job} {ctx.fence}")
    return f"{ctx.fence}-{ctx.meta['delivery']}"


@app.task
async def stepwise(ctx: Context, steps: int) -> int:
    done = ctx.state or 0
    while done < steps:
        await asyncio.sleep(0.1)
        done += 1
        _say(f"step {ctx.job} {done}")
        await ctx.acheckpoint(done)
    return done


@app.task
async def urgent(ctx: Context) -> str:
    _say(f"urgent {ctx.job}")
    return "now"

"""Tasks for tests on servers, where child processes can import them."""

from __future__ import annotations

import asyncio
import os
import time

from daybreak import Context, Daybreak

app = Daybreak("memory://", name="deeds")


@app.task
async def double(n: int) -> int:
    return 2 * n


@app.task
def plain(n: int) -> int:
    return n + 1


@app.task(retry=3)
def flaky(ctx: Context, n: int) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return n


@app.task
async def nap(n: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return n


@app.task(retry=10)
def slow(n: int, seconds: float) -> int:
    time.sleep(seconds)
    return n


@app.task
def steps(ctx: Context) -> str:
    ctx.checkpoint({"half": True})
    ctx.progress(0.5, "half")
    return f"{os.getpid()}"


@app.task
def say(word: str) -> None:
    for _ in range(3):
        print("said", word)


@app.task
async def asay(word: str) -> None:
    for _ in range(3):
        print("said", word)
        await asyncio.sleep(0)

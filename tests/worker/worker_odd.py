"""Tasks that end in unusual ways."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from daybreak import Context, Daybreak, Retry, Suspend

app = Daybreak()

SOON = Retry(strategy="fixed", delay=timedelta(milliseconds=20))
HALF = "half \udcff a pair"


class Rude(Exception):
    @property
    def response(self):
        raise KeyError("not even this")


@app.task(retry=1)
def rude() -> None:
    raise Rude("rude")


@app.task(retry=1)
async def arude() -> None:
    raise Rude("rude")


@app.task
def suspend_oddly() -> None:
    raise Suspend(HALF)


@app.task
async def asuspend_oddly() -> None:
    raise Suspend(HALF)


@app.task
def speak_oddly(ctx: Context) -> int:
    ctx.log.info("%d", "no number")
    ctx.log.info(HALF)
    ctx.progress(0.5, HALF)
    return 1


@app.task
async def aspeak_oddly(ctx: Context) -> int:
    ctx.log.warning(HALF)
    ctx.progress(0.5, HALF)
    return 1


@app.task
def late_checkpoint(ctx: Context) -> int:
    """Saves a checkpoint from an event loop that is closed when the reply comes."""

    async def ask() -> None:
        task = asyncio.create_task(ctx.acheckpoint({"n": 1}))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(ask())
    return 1


@app.task
def plain(n: int) -> int:
    return n


@app.task(retry=SOON)
def lose_its_voice() -> int:
    """Closes every file descriptor except the standard ones, as careless daemons do."""
    os.closerange(3, 65_536)  # a process of many tests has many open
    return 1


@app.task(retry=SOON)
def die_with_a_subprocess(place: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with Path(place).open("a") as file:
        file.write(f"{process.pid}\n")
    os.abort()


# -- elsewhere ---------------------------------------------------------------------------------------------------------


@app.task
def where() -> str:
    """The working directory; empty if it was deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


@app.task
def go(ctx: Context, to: str = "") -> str:
    """Change to a folder; without one, to the scratch folder, which is deleted when the job ends."""
    os.chdir(to or ctx.scratch)
    return str(Path.cwd())


@app.task(retry=1)
def go_and_fail(to: str) -> None:
    os.chdir(to)
    raise ValueError("far from home")


@app.task
def go_and_remove(home: str, to: str) -> None:
    os.chdir(to)
    Path(home).rmdir()


@app.task
async def awhere() -> str:
    return str(Path.cwd())


@app.task
async def ago(to: str, seconds: float = 0) -> str:
    os.chdir(to)
    await asyncio.sleep(seconds)
    return str(Path.cwd())

"""Tasks that share resources, for workers in separate processes. Each start is recorded in a file of lines."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from daybreak import Breaker, Context, Daybreak, Resource, Retry, Transient

FOLDER = "SHARED_DEEDS"

app = Daybreak(name="shared")

licence = Resource("licence", slots=3)
server = Resource("server", breaker=Breaker(failures=5, successes=2, open_for="1s"))


def say(word: str) -> None:
    line = f"{time.time()} {os.getpid()} {word}\n".encode()
    with (Path(os.environ[FOLDER]) / "lines").open("ab", buffering=0) as file:
        file.write(line)


backend = Resource("backend")
AGAIN_SOON = Retry(strategy="fixed", attempts=1000, delay=timedelta(milliseconds=20))


@app.task(resource=backend, retry=AGAIN_SOON)
async def call(ctx: Context, n: int) -> int:
    """Works when there is a file that says so; says of every call whether it was a job's first."""
    say("first" if ctx.attempt == 1 else "retry")
    await asyncio.sleep(0.005)
    if not (Path(os.environ[FOLDER]) / "well").exists():
        raise Transient("down")
    return n


@app.task(resource=licence, retry=50, deaths=50)
def simulate(n: int, seconds: float) -> int:
    time.sleep(seconds)
    return n


@app.task(resource=server, retry=100)
def ask(n: int) -> int:
    say("asked")
    if not (Path(os.environ[FOLDER]) / "well").exists():
        raise Transient("down", retry_after="50ms")
    return n

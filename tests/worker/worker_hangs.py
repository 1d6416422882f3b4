"""Tasks that hang, each in its own way, and some that only seem to."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

from daybreak import Context, Daybreak

app = Daybreak()


@app.task(retry=1, hang="1s", timeout="60s")
def sleeps_for_ever() -> None:
    waits_for_nobody()


def waits_for_nobody() -> None:
    time.sleep(60)


@app.task(retry=1, hang="1s")
def sleeps_without_a_limit() -> None:
    waits_for_nobody()


@app.task(retry=1, hang="1s")
def holds_the_interpreter() -> None:
    """C code that waits for itself and holds the GIL meanwhile."""
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)


@app.task(retry=1, hang="1s")
def computes(seconds: float) -> str:
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += 1
    return "done"


def computing(seconds: float) -> list[str]:
    code = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    return [sys.executable, "-c", code]


@app.task(retry=1, hang="1s")
def has_another_compute(seconds: float) -> str:
    subprocess.run(computing(seconds), check=True)
    return "done"


@app.task(retry=1, hang="1s")
def has_a_session_compute(seconds: float) -> str:
    subprocess.run(computing(seconds), check=True, start_new_session=True)
    return "done"


@app.task(retry=1, hang="2s")
def has_an_orphan_compute(seconds: float) -> str:
    """The parent of the process, a shell, exits at once; the job waits until no process holds the pipe."""
    mine, theirs = os.pipe()
    subprocess.run(["/bin/sh", "-c", '"$@" &', "sh", *computing(seconds)], check=True, pass_fds=[theirs])
    os.close(theirs)
    os.read(mine, 1)
    return "done"


@app.task(retry=1, hang="1s")
def computes_a_little(seconds: float) -> str:
    """Uses a tenth of a core."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.4)
        begun = time.thread_time()
        while time.thread_time() - begun < 0.04:
            pass
    return "done"


@app.task(retry=1, hang="1s")
def polls() -> None:
    """Polls for a file that nobody writes."""
    while not Path("/nowhere/at/all").exists():
        time.sleep(0.2)


@app.task(retry=1, hang="1s")
def tells_of_progress(ctx: Context, times: int) -> str:
    for n in range(times):
        time.sleep(0.5)
        ctx.progress((n + 1) / times)
    return "done"


@app.task(retry=1, hang="1s")
def prints(times: int) -> str:
    for n in range(times):
        time.sleep(0.5)
        sys.stdout.write(f"line {n}\n")
    return "done"


@app.task(retry=2, hang="1s")
def hangs_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        time.sleep(60)
    return ctx.attempt


@app.task(retry=1, hang="1s")
async def awaits_for_ever() -> None:
    await nothing_comes()


async def nothing_comes() -> None:
    await asyncio.Event().wait()


@app.task(retry=1)
async def neighbour(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds

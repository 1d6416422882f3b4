"""Deeds that stand still, each in its own way, and some that only seem to."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
import time

from daybreak import Context, Daybreak

app = Daybreak()


@app.task(retry=1, hang="1s")
def sleeps_for_ever() -> None:
    waits_for_nobody()


def waits_for_nobody() -> None:
    time.sleep(60)


@app.task(retry=1, hang="1s")
def holds_the_interpreter() -> None:
    """C code that waits for itself, and lets nobody else run meanwhile."""
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)


@app.task(retry=1, hang="1s")
def computes(seconds: float) -> str:
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += 1
    return "done"


@app.task(retry=1, hang="1s")
def has_another_compute(seconds: float) -> str:
    code = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    return "done"


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

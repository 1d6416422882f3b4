"""Tasks that stay where they are until they are killed, each in its own way."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import time

from daybreak import Daybreak, Secret

app = Daybreak(name="stacks")


@app.task
def waits(depth: int = 0) -> None:
    stands_here(depth)


def stands_here(depth: int) -> None:
    local = "a value that is shown to nobody"
    if depth:
        stands_here(depth - 1)
    time.sleep(600)
    del local


@app.task
async def awaits() -> None:
    await stands_there()


async def stands_there() -> None:
    await asyncio.sleep(600)


@app.task
async def blocks() -> None:
    time.sleep(600)  # noqa: ASYNC251 - what it is about


@app.task
def holds_the_interpreter() -> None:
    """C code that waits for itself and holds the GIL meanwhile."""
    libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)


@app.task(retry=1)
def starts_a_program(password: Secret[str]) -> None:
    """Its file name and the arguments of its program contain a secret."""
    program = ["sh", "-c", "sleep 600; true", password.reveal()]
    code = compile("subprocess.run(program, check=True)", f"/{password.reveal()}.py", "exec")
    exec(code, {"subprocess": subprocess, "program": program})  # noqa: S102 - a made-up file name


@app.task
def stands_in_made_up_code() -> None:
    code = compile("time.sleep(600)", "\x1b[31m<script>alert(1)</script>", "exec")
    exec(code, {"time": time})  # noqa: S102

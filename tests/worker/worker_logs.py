"""An app whose tasks print and log."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from daybreak import Context, Daybreak, Secret

app = Daybreak()
HOSTILE = "\x1b]0;title\x07\x1b[31mred</pre><script>alert(1)</script>\u2028\r\x00end"


@app.task
def say(ctx: Context, word: str) -> None:
    print("printed", word)
    print("to stderr", word, file=sys.stderr)
    logging.getLogger("mine").warning("warned %s", word)
    ctx.log.info("logged %s", word)
    thread = threading.Thread(target=print, args=("from a thread", word))
    thread.start()
    thread.join()


@app.task
async def asay(ctx: Context, word: str, turns: int) -> None:
    for n in range(turns):
        print("turn", n, "of", word)
        await asyncio.sleep(0.001)
    await asyncio.to_thread(print, "from a thread", word)
    ctx.log.warning("logged %s", word)


@app.task
def much(lines: int) -> None:
    for n in range(lines):
        print(f"{n:07}", "x" * 91)  # 100 bytes


@app.task(retry=2)
def fail_first(ctx: Context) -> None:
    print("attempt", ctx.attempt)
    if ctx.attempt == 1:
        raise ConnectionError("not yet")


@app.task(retry=2)
def killed(ctx: Context) -> None:
    print("run", ctx.fence, "prints this")
    if ctx.fence == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
def wait_for(path: str) -> None:
    print("waiting")
    while not Path(path).exists():
        time.sleep(0.02)
    print("found it")


@app.task
def hostile() -> None:
    print(HOSTILE)


@app.task
def show_secret(token: Secret[str], also: dict[str, Secret[str]]) -> None:
    print("token", token.reveal(), "and", also["key"].reveal(), "but", token)


@app.task
def fork_and_print() -> None:
    pid = os.fork()
    if pid == 0:
        print("in the fork")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    print("in the parent")


@app.task
def quiet(n: int) -> int:
    return n

"""The tasks of the workers under test. A task that reports what it does writes a line to a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from worker_processes import write_line

from daybreak import Context, Daybreak, Permanent, Retry, Suspend

app = Daybreak()

SOON = Retry(strategy="fixed", delay=timedelta(milliseconds=50))
ONCE = Retry(attempts=1)


def tell(ctx: Context, word: str, **facts: Any) -> None:
    write_line(job=ctx.job, task=ctx.task, attempt=ctx.attempt, fence=ctx.fence, word=word, **facts)


# -- short and long ----------------------------------------------------------------------------------------------------


@app.task(retry=SOON)
def noop(n: int = 0) -> int:
    return n


@app.task(retry=SOON)
def idle(seconds: float) -> float:
    """Returns at once, or sleeps."""
    if seconds:
        time.sleep(seconds)
    return seconds


@app.task(retry=SOON)
def nap(ctx: Context, seconds: float) -> float:
    tell(ctx, "began")
    time.sleep(seconds)
    tell(ctx, "ended")
    return seconds


@app.task(retry=SOON)
async def anap(ctx: Context, seconds: float) -> float:
    tell(ctx, "began")
    await asyncio.sleep(seconds)
    tell(ctx, "ended")
    return seconds


@app.task(retry=ONCE)
async def anap_once(ctx: Context, seconds: float) -> float:
    """Has one attempt: a death that it did not cause must not fail it."""
    tell(ctx, "began")
    await asyncio.sleep(seconds)
    return seconds


@app.task(retry=SOON)
def wait_for_file(ctx: Context, path: str) -> str:
    """Waits until the file exists."""
    tell(ctx, "began")
    while not Path(path).exists():
        time.sleep(0.005)
    tell(ctx, "ended")
    return path


async def _laid_down(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells
        await asyncio.sleep(0.005)


@app.task(retry=SOON)
async def await_file(ctx: Context, path: str) -> str:
    """The same, as an async task."""
    tell(ctx, "began")
    await _laid_down(path)
    return path


@app.task(retry=SOON)
async def await_file_and_stumble(ctx: Context, path: str) -> str:
    """Fails once, when the file exists."""
    tell(ctx, "began")
    await _laid_down(path)
    stumbled = Path(f"{path}-{ctx.job}")
    if not stumbled.exists():  # noqa: ASYNC240
        stumbled.touch()  # noqa: ASYNC240
        raise ConnectionError("not now")
    return path


@app.task(retry=SOON, deaths=1)
async def kill_the_worker(ctx: Context, path: str) -> None:
    """Kills its worker once the file exists, and at every later attempt."""
    tell(ctx, "began")
    await _laid_down(path)
    os.kill(os.getppid(), signal.SIGKILL)
    await asyncio.sleep(3600)


@app.task(retry=SOON)
def hold_the_gil(ctx: Context, seconds: float) -> int:
    """Computes in C and holds the GIL: no other thread of this process runs meanwhile."""
    tell(ctx, "began")
    began = time.monotonic()
    rounds = 0
    while time.monotonic() - began < seconds:
        sum(range(20_000_000))
        rounds += 1
    tell(ctx, "ended")
    return rounds


@app.task(retry=SOON)
def compute_for_ever(ctx: Context) -> int:
    """One call into C that never returns."""
    tell(ctx, "began")
    return sum(range(10**12))


# -- longer than they may ----------------------------------------------------------------------------------------------


@app.task(timeout="400ms", retry=ONCE)
def spin(ctx: Context) -> None:
    tell(ctx, "began")
    while True:
        pass


@app.task(timeout="400ms", retry=ONCE)
def sleep_on(ctx: Context) -> None:
    tell(ctx, "began")
    time.sleep(3600)


@app.task(timeout="400ms", retry=ONCE)
def backtrack(ctx: Context) -> None:
    tell(ctx, "began")
    re.match(r"(a+)+b", "a" * 64)


@app.task(timeout="400ms", retry=ONCE)
async def asleep_on(ctx: Context) -> None:
    tell(ctx, "began")
    await asyncio.sleep(3600)


@app.task(timeout="400ms", retry=ONCE)
async def swallow(ctx: Context) -> None:
    """Ignores its cancellation."""
    tell(ctx, "began")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@app.task(timeout="400ms", retry=ONCE)
async def block_the_loop(ctx: Context) -> None:
    tell(ctx, "began")
    time.sleep(3600)  # noqa: ASYNC251 - that is the point


@app.task(retry=SOON)
async def block_a_while(ctx: Context, first: float, seconds: float) -> None:
    tell(ctx, "began")
    await asyncio.sleep(first)
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


@app.task(timeout="1500ms", retry=ONCE)
async def anap_in_time(ctx: Context, seconds: float) -> float:
    tell(ctx, "began")
    await asyncio.sleep(seconds)
    return seconds


@app.task(timeout="400ms", retry=SOON)
async def stumble_out(ctx: Context) -> None:
    """Ends when it is asked to stop, and fails while it does."""
    tell(ctx, "began")
    try:
        await asyncio.sleep(3600)
    finally:
        raise ValueError("the door was shut")


stumble_when_held = app.task(retry=SOON, name="stumble_when_held")(stumble_out.definition.function)


@app.task(timeout="400ms", retry=ONCE)
def start_apart(ctx: Context) -> None:
    """Starts a program in its own session, and waits for it."""
    with subprocess.Popen(["sleep", "3600"], start_new_session=True) as program:
        tell(ctx, "began", program=program.pid)


@app.task(timeout="2s", retry=ONCE)
def tick(ctx: Context, times: int) -> int:
    """Works for this many hundredths of a second, without those in which its process was suspended."""
    tell(ctx, "began")
    for _ in range(times):
        time.sleep(0.01)
    return times


@app.task(timeout="2s", retry=ONCE)
async def atick(ctx: Context, times: int) -> int:
    tell(ctx, "began")
    for _ in range(times):
        await asyncio.sleep(0.01)
    return times


# -- dying -------------------------------------------------------------------------------------------------------------


@app.task(retry=SOON)
def die(ctx: Context) -> None:
    tell(ctx, "began")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=ONCE)
def exit_hard(ctx: Context) -> None:
    tell(ctx, "began")
    os._exit(7)


@app.task(retry=SOON)
def die_at_first(ctx: Context) -> int:
    tell(ctx, "began")
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt


@app.task(retry=ONCE)
async def exit_in_part(ctx: Context) -> None:
    """A subtask calls sys.exit(), which ends the event loop on which other jobs run."""
    tell(ctx, "began")

    async def leave_all() -> None:
        sys.exit("no licence")

    async with asyncio.TaskGroup() as parts:
        parts.create_task(leave_all())


@app.task(retry=ONCE)
def fork_and_come_back(ctx: Context, how: str) -> int:
    """Forks, and returns the exit code of the forked process, which returns from the task function too."""
    tell(ctx, "began")
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    tell(ctx, "cloned", pid=os.getpid(), scratch=str(ctx.scratch))
    match how:
        case "returns":
            return 99
        case "exits":
            sys.exit(7)
        case _:
            raise FileNotFoundError("no such program")


@app.task(retry=ONCE)
async def afork_and_come_back(ctx: Context, how: str) -> int:
    return fork_and_come_back.definition.function(ctx, how)  # type: ignore[no-any-return]


@app.task(retry=SOON)
async def adie(ctx: Context) -> None:
    tell(ctx, "began")
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=SOON)
def grow(ctx: Context, mebibytes: int) -> int:
    """Takes memory and keeps it, like a library that leaks."""
    tell(ctx, "began")
    kept.append(bytearray(os.urandom(1)) * (mebibytes << 20))
    return os.getpid()


kept: list[bytearray] = []


@app.task(retry=SOON)
def pid() -> int:
    return os.getpid()


# -- failing -----------------------------------------------------------------------------------------------------------


@app.task(retry=SOON)
def fail_until(ctx: Context, attempt: int) -> int:
    tell(ctx, "began")
    if ctx.attempt < attempt:
        raise ConnectionError(f"no answer at try {ctx.attempt}")
    return ctx.attempt


@app.task(retry=SOON)
def refuse(ctx: Context) -> None:
    tell(ctx, "began")
    raise Permanent("never")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


@app.task(retry=ONCE)
def fail_mutely() -> None:
    raise Mute


@app.task(retry=ONCE)
def fail_strangely() -> None:
    raise OSError("caf\udce9 \x00 \U0001f600")


@app.task(retry=ONCE)
def leave() -> None:
    raise SystemExit(3)


@app.task
def hold_until_resumed(ctx: Context) -> str:
    tell(ctx, "began")
    if ctx.fence == 1:
        raise Suspend("waits for a signature")
    return "signed"


# -- results -----------------------------------------------------------------------------------------------------------


class Thing:
    def __repr__(self) -> str:
        return "<a thing that cannot travel>"


@app.task
def give(what: str) -> Any:
    return {
        "nan": float("nan"),
        "inf": float("inf"),
        "deep": {"minus": [float("-inf"), None]},
        "thing": Thing(),
        "wide": "x" * 3_000_000,
        "half": "\ud83d",
        "endless": _endless(),
    }[what]


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


# -- saying ------------------------------------------------------------------------------------------------------------


@app.task(retry=SOON)
def report(ctx: Context, path: str) -> None:
    """Reports progress, then waits for the file."""
    ctx.progress(0.25, "a quarter")
    tell(ctx, "said")
    while not Path(path).exists():
        time.sleep(0.005)


@app.task(retry=SOON)
def report_often(ctx: Context, path: str) -> None:
    for n in range(1000):
        ctx.progress(n / 1000, f"step {n}")
    ctx.progress(1.0, "the last")
    tell(ctx, "said")
    while not Path(path).exists():
        time.sleep(0.005)


@app.task(retry=SOON)
def count_on(ctx: Context, to: int) -> list[Any]:
    """Counts from its checkpoint; the first attempt stops half way until its process is killed."""
    began_at = ctx.state or 0
    dear = ctx.step("dear", _spend, ctx)
    for n in range(began_at, to):
        tell(ctx, "counted", n=n)
        ctx.checkpoint(n + 1)
        if n + 1 == to // 2 and ctx.attempt == 1:
            tell(ctx, "half way")
            time.sleep(3600)
    return [began_at, dear, ctx.attempt]


def _spend(ctx: Context) -> int:
    tell(ctx, "spent")
    return 42


@app.task(retry=SOON)
async def acount_on(ctx: Context, to: int) -> list[Any]:
    began_at = ctx.state or 0
    dear = await ctx.astep("dear", _aspend, ctx)
    for n in range(began_at, to):
        tell(ctx, "counted", n=n)
        await ctx.acheckpoint(n + 1)
        if n + 1 == to // 2 and ctx.attempt == 1:
            tell(ctx, "half way")
            await asyncio.sleep(3600)
    return [began_at, dear, ctx.attempt]


async def _aspend(ctx: Context) -> int:
    tell(ctx, "spent")
    await asyncio.sleep(0)
    return 42


@app.task(retry=ONCE)
def use_scratch(ctx: Context, how: str) -> str:
    (ctx.scratch / "notes.txt").write_text("x")
    tell(ctx, "scratch", path=str(ctx.scratch))
    if how == "fail":
        raise ValueError("after scratching")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return str(ctx.scratch)


@app.task
def log_much(ctx: Context, lines: int) -> str:
    for n in range(lines):
        ctx.log.info("line %d", n)
    return "x" * 200_000


@app.task
async def alog_much(ctx: Context, lines: int) -> str:
    for n in range(lines):
        ctx.log.info("line %d", n)
        if n % 10 == 0:
            await asyncio.sleep(0)
    return "x" * 200_000


@app.task
def submit_more(ctx: Context, n: int) -> list[int]:
    """Submits jobs and does not wait for them."""
    return [len(noop.submit(i).id) for i in range(n)]


@app.task(retry=SOON)
def until_cancelled(ctx: Context) -> str:
    tell(ctx, "began")
    while not ctx.cancelled:
        time.sleep(0.005)
    tell(ctx, "heard")
    return "left early"


@app.task(retry=SOON)
def deaf(ctx: Context) -> None:
    """Ignores requests to stop."""
    tell(ctx, "began")
    time.sleep(3600)


@app.task(retry=SOON)
async def auntil_cancelled(ctx: Context) -> str:
    tell(ctx, "began")
    try:
        await asyncio.sleep(3600)
    finally:
        tell(ctx, "heard")
    return "never"


# -- work that goes on elsewhere ---------------------------------------------------------------------------------------


@app.task(retry=SOON)
def pod(ctx: Context, deadline: str = "1h") -> str:
    tell(ctx, "began", pid=os.getpid())
    return ctx.detach(deadline)


@app.task(retry=SOON)
async def apod(ctx: Context, deadline: str = "1h") -> str:
    tell(ctx, "began", pid=os.getpid())
    return ctx.detach(deadline)


@app.task(retry=SOON)
def fast_pod(ctx: Context) -> str:
    """Its pod is done before the task returns."""
    app.finish(ctx.job, f"result {ctx.attempt}", fence=ctx.fence)
    tell(ctx, "finished")
    return ctx.detach("1h")

"""Checked by mypy, never run: what a task's signature makes of `submit`. A line that must be refused says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from daybreak import Adaptive, Context, Daybreak, JobHandle, JobInfo, JobOutcome, Retry, State, Task, Transient

app = Daybreak()


@app.task
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task(retry=3, timeout="10m")
def shout(ctx: Context, text: str, *, loud: bool = True) -> str:
    return text.upper() if loud else text


@app.task
async def fetch(url: str) -> bytes:
    return url.encode()


@app.task(queue="web")
async def follow(ctx: Context, url: str, depth: int) -> list[str]:
    return [url] * depth


def plain() -> None:
    assert_type(add.submit(1, b=2), JobHandle[int])
    assert_type(add.submit(1, 2).result(), int)
    assert_type(add.submit(1, 2).outcome(), JobOutcome[int])
    assert_type(add.submit(1, 2).outcome().result, int)
    assert_type(add.map([1, 2]), list[int])
    assert_type(add.submit_many([{"a": 1}]), list[JobHandle[int]])
    add.submit("1")  # refused: arg-type
    add.submit(1, c=2)  # refused: call-arg
    add.submit()  # refused: call-arg
    add.submit(1, priority="high")  # refused: call-arg


def injected() -> None:
    assert_type(shout.submit("a", loud=False), JobHandle[str])
    shout.submit(Context(), "a")  # refused: arg-type, call-arg, misc
    shout.submit("a", loud="yes")  # refused: arg-type


def with_options() -> None:
    urgent = add.using(priority="critical", delay="1h")
    assert_type(urgent.submit(1), JobHandle[int])
    urgent.submit("1")  # refused: arg-type
    shout.using(queue="x").using(delay="1m").submit(1)  # refused: arg-type


def misspelt() -> None:
    add.using(priorty="high")  # refused: call-arg
    add.using(eta="1h")  # refused: call-arg
    add.using(tags=1)  # refused: typeddict-item, arg-type
    add.using(delay=60)  # refused: arg-type
    app.task(retries=3)  # refused: call-overload
    app.task(retry=3, timout="10m")  # refused: call-overload
    app.worker(proceses=2)  # refused: call-arg
    app.aworker(burst=True)  # refused: call-arg
    app.work(until_idel=True)  # refused: call-arg
    app.worker(processes="2")  # refused: arg-type
    app.find(stat="failed")  # refused: call-arg
    app.count(que="mail")  # refused: call-arg


def looking() -> None:
    for info in app.find(state="failed", queue="mail", task=add, limit=10):
        assert_type(info, JobInfo)
        assert_type(info.args, dict[str, Any])
        assert_type(info.worker, str | None)
    assert_type(app.count(state=["failed", State.CANCELLED], priority="high"), int)
    assert_type(add.submit(1).info(), JobInfo)
    with app.worker(queues=["mail"], processes=2, grace="10s", isolation="thread"):
        app.work(until="idle", async_jobs=10)


def durations() -> None:
    Retry(delay="2s", cap=timedelta(minutes=1))
    Retry(delay=2)  # refused: arg-type
    Adaptive("4s", escalate=2.0)
    Adaptive(4)  # refused: arg-type
    Transient("busy", retry_after="90s")
    Transient("busy", retry_after=90)  # refused: arg-type


async def asynchronous() -> None:
    job = await fetch.asubmit("http://localhost")
    assert_type(job, JobHandle[bytes])
    assert_type(await job, bytes)
    assert_type(await job.aresult(timeout="1m"), bytes)
    assert_type(fetch.submit("http://localhost").result(), bytes)
    assert_type(await (await follow.asubmit("http://localhost", depth=2)), list[str])
    fetch.submit(1)  # refused: arg-type
    await follow.asubmit("http://localhost")  # refused: call-arg
    async for done in app.aas_completed([job]):
        assert_type(done, JobHandle[bytes])
    for finished in app.as_completed([job]):
        assert_type(finished, JobHandle[bytes])


def takes_a_task(task: Task[[int], str]) -> None:
    assert_type(task.submit(1).result(), str)


takes_a_task(add)  # refused: arg-type

"""An app with a lifespan around the worker, a setup around each child, and a wrap around each job."""

from __future__ import annotations

import os
from types import SimpleNamespace

from worker_processes import write_line

from daybreak import Context, Daybreak, context

app = Daybreak()


@app.lifespan
def whole_life():
    write_line(word="life begins")
    yield {"licence": "B-52", "supervisor": os.getpid()}
    write_line(word="life ends")


@app.lifespan
async def whole_life_too():
    write_line(word="async life begins")
    yield {"pool": [1, 2, 3]}
    write_line(word="async life ends")


@app.setup
def each_child(shared: SimpleNamespace):
    shared.solver = f"solver of {os.getpid()} with {shared.licence}"
    write_line(word="set up")
    yield
    write_line(word="torn down")


@app.setup
async def each_child_too() -> None:
    write_line(word="async set up")


@app.wrap
def each_job(ctx: Context):
    write_line(word="before", job=ctx.job)
    try:
        yield
    except KeyError:
        write_line(word="swallowed", job=ctx.job)
    finally:
        write_line(word="after", job=ctx.job)


@app.task
def look(ctx: Context) -> list[object]:
    write_line(word="at work", job=ctx.job)
    return [ctx.shared.licence, ctx.shared.solver, ctx.shared.pool, ctx.shared.supervisor, os.getpid()]


@app.task
async def alook(ctx: Context) -> list[object]:
    return [ctx.shared.licence, context().job == ctx.job, ctx.shared.pool, ctx.shared.supervisor, os.getpid()]


@app.task(retry=1)
def miss() -> None:
    raise KeyError("a wrap may make something else of this")

"""Tasks that make spans of their own, and a web application that submits them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from daybreak import Context, Daybreak, Retry, Transient

app = Daybreak("sqlite:///jobs.db")


@app.task(retry=Retry(attempts=2, delay="0s"))
async def second_time(ctx: Context) -> None:
    from opentelemetry import trace

    with trace.get_tracer("user").start_as_current_span(f"look {ctx.attempt}"):
        await asyncio.sleep(0)
    if ctx.attempt == 1:
        raise Transient("not yet")


@app.task
def dies_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    from opentelemetry import trace

    with trace.get_tracer("user").start_as_current_span("work"):
        pass


@app.task
def waits(ctx: Context, began: str, released: str) -> None:
    Path(began).touch()
    while ctx.attempt == 1 and not Path(released).exists():
        import time

        time.sleep(0.01)


@app.task
def modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("opentelemetry")]


async def request() -> None:
    """A request to a FastAPI application, which has spans of its own, that submits two jobs."""
    import httpx
    from fastapi import FastAPI

    from daybreak.telemetry.sdk import set_up_traces

    set_up_traces()
    web = FastAPI()

    @web.post("/order")
    async def order() -> list[str]:
        first = await second_time.using(key="one").asubmit()
        return [first.id, (await dies_once.asubmit()).id]

    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web") as client:
        print(*(await client.post("/order")).json())
    await app.aclose()


if __name__ == "__main__":
    app.use(sys.argv[1])
    asyncio.run(request())

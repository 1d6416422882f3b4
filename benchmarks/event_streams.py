"""From just before a change in one process until a client of the server in another has received its event."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from benchmarks.api_server import messages, served
from benchmarks.stats import quantile
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours

LISTENERS = 10
WARM_UP = 5
WITHIN = 60


def seen(store: str, place: Path, jobs: int) -> Timed:
    """Milliseconds, p95: a job is submitted by this process every 30 to 130 ms, at random, because the server reads at
    regular intervals; each of some clients waits for its event."""
    with ours(store, place) as runner, served(place) as (_, port):
        waits = runner.app.portal.run(_measure(runner, port, jobs))
        facts = runner.facts()
    p50, p95, p99 = (quantile(waits, part) for part in (0.5, 0.95, 0.99))
    return Timed(figure=p95, parts={"p50": p50, "p99": p99, "worst": waits[-1]}, facts=facts)


async def _measure(runner: Ours, port: int, jobs: int) -> list[float]:
    asked: dict[bytes, int] = {}
    seen_at: list[tuple[bytes, int]] = []  # the event may be here before `asubmit` returns
    is_open = [asyncio.Event() for _ in range(LISTENERS)]

    async def listen(opened: asyncio.Event) -> None:
        async for message in messages(port):
            opened.set()
            if b'"kind":"submitted"' in message:
                seen_at.append((_job_in(message), time.monotonic_ns()))

    listeners = [asyncio.create_task(listen(opened)) for opened in is_open]
    try:
        async with asyncio.timeout(WITHIN):
            for opened in is_open:
                await opened.wait()
        for n in range(jobs + WARM_UP):
            await asyncio.sleep(0.03 + 0.1 * random.random())
            at = time.monotonic_ns()
            job = await runner.task.asubmit(n)
            if n >= WARM_UP:
                asked[job.id.encode()] = at
        async with asyncio.timeout(WITHIN):
            while len(seen_at) < (jobs + WARM_UP) * LISTENERS:  # noqa: ASYNC110 - the listeners only collect
                await asyncio.sleep(0.05)
    finally:
        for task in listeners:
            task.cancel()
    return sorted((at - asked[job]) / 1e6 for job, at in seen_at if job in asked)


def _job_in(message: bytes) -> bytes:
    return message.partition(b'"job":"')[2].partition(b'"')[0]

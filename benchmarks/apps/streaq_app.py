"""streaq with its defaults."""

from __future__ import annotations

import asyncio
import os

from streaq import Worker

from benchmarks.apps import portions
from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("streaq", "coredis")
WORKER = ("-m", "benchmarks.apps.streaq_app")  # its own command logs each job

worker = Worker(redis_url=os.environ[URL])


async def noop(n: int) -> int:
    started(n)
    return n


task = worker.task(noop)


def enqueue(numbers: range) -> None:
    asyncio.run(_enqueue(numbers))


async def _enqueue(numbers: range) -> None:
    async with worker:
        for n in numbers:
            await task.enqueue(n)


def bulk(numbers: range) -> None:
    asyncio.run(_bulk(numbers))


async def _bulk(numbers: range) -> None:
    async with worker:
        for some in portions(numbers):
            await worker.enqueue_many([task.enqueue(n) for n in some])


if __name__ == "__main__":
    worker.run_sync()

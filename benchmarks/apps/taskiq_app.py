"""taskiq on Redis streams, without a result backend."""

from __future__ import annotations

import asyncio
import os

from taskiq_redis import RedisStreamBroker

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("taskiq", "taskiq-redis", "redis")
WORKER = (
    "-m", "taskiq", "worker", "benchmarks.apps.taskiq_app:broker", "--workers", "1", "--max-async-tasks", "100",
    "--log-level", "WARNING",
)  # fmt: skip

broker = RedisStreamBroker(os.environ[URL])
_loop = asyncio.Runner()


@broker.task(task_name="noop")
async def noop(n: int) -> int:
    started(n)
    return n


def prepare() -> None:
    _loop.run(broker.startup())  # makes the group, which sees only what comes after it


def enqueue(numbers: range) -> None:
    _loop.run(_enqueue(numbers))


async def _enqueue(numbers: range) -> None:
    for n in numbers:
        await noop.kiq(n)

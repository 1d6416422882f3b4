"""saq with its defaults, on Redis or PostgreSQL as the store's address says."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from saq import Queue

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("saq", "psycopg" if os.environ[URL].startswith("postgresql") else "redis")
WORKER = ("-m", "saq", "benchmarks.apps.saq_app.settings", "--quiet")

queue = Queue.from_url(os.environ[URL])
_loop = asyncio.Runner()


async def noop(_: dict[str, Any], *, n: int) -> int:
    started(n)
    return n


settings = {"queue": queue, "functions": [noop], "concurrency": 10}


def prepare() -> None:
    _loop.run(queue.connect())


def enqueue(numbers: range) -> None:
    _loop.run(_enqueue(numbers))


async def _enqueue(numbers: range) -> None:
    for n in numbers:
        await queue.enqueue("noop", n=n)


def close() -> None:
    _loop.run(queue.disconnect())

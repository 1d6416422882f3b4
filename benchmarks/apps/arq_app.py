"""arq with 100 jobs at once and a look each 10 ms: at its defaults (10, and 500 ms) it drains 240 jobs a second."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("arq", "redis")
WORKER = ("-m", "arq", "benchmarks.apps.arq_app.WorkerSettings", "--custom-log-dict", "benchmarks.apps.arq_app.QUIET")

QUIET = {"version": 1, "disable_existing_loggers": False}
_loop = asyncio.Runner()
_redis: Any = None


async def noop(_: dict[str, Any], n: int) -> int:
    started(n)
    return n


class WorkerSettings:
    functions: ClassVar = [noop]
    redis_settings = RedisSettings.from_dsn(os.environ[URL])
    max_jobs = 100
    poll_delay = 0.01


def enqueue(numbers: range) -> None:
    _loop.run(_enqueue(numbers))


async def _enqueue(numbers: range) -> None:
    global _redis  # noqa: PLW0603 - one connection for all calls
    _redis = _redis or await create_pool(WorkerSettings.redis_settings)
    for n in numbers:
        await _redis.enqueue_job("noop", n)

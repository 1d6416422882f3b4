"""huey with its defaults on Redis."""

from __future__ import annotations

import logging
import os

from huey import RedisHuey

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("huey", "redis")
WORKER = ("-m", "huey.bin.huey_consumer", "benchmarks.apps.huey_redis_app.queue", "-k", "thread", "-w", "1", "-q")

logging.getLogger("huey").setLevel(logging.WARNING)
queue = RedisHuey("bench", url=os.environ[URL])


@queue.task()
def noop(n: int) -> int:
    started(n)
    return n


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop(n)

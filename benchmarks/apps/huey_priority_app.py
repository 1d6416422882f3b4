"""huey with its sorted set on Redis: who submits late and urgently is popped first."""

from __future__ import annotations

import logging
import os

from huey import PriorityRedisHuey

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("huey", "redis")
WORKER = ("-m", "huey.bin.huey_consumer", "benchmarks.apps.huey_priority_app.queue", "-k", "thread", "-w", "1", "-q")

logging.getLogger("huey").setLevel(logging.WARNING)
queue = PriorityRedisHuey("bench", url=os.environ[URL])


@queue.task()
def noop(n: int) -> int:
    started(n)
    return n


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop(n)


def urgent(n: int) -> None:
    noop(n, priority=10)

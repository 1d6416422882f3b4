"""taskito on PostgreSQL, claiming 100 jobs at once, which it names as the setting for throughput."""

from __future__ import annotations

import os

from taskito import Queue

from benchmarks.apps import portions
from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("taskito",)
WORKER = ("-m", "taskito.cli", "worker", "--app", "benchmarks.apps.taskito_postgres_app:queue")

os.environ["TASKITO_LOG_LEVEL"] = "WARNING"
queue = Queue(backend="postgres", db_url=os.environ[URL], scheduler_batch_size=100)


@queue.task()
async def noop(n: int) -> int:
    started(n)
    return n


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop.delay(n)


def bulk(numbers: range) -> None:
    for some in portions(numbers):
        noop.map([(n,) for n in some])

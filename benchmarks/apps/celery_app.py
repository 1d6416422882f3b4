"""celery on Redis, without a result backend."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("celery", "kombu", "redis")
WORKER = (
    "-m", "celery", "-A", "benchmarks.apps.celery_app:queue", "worker", "-P", "prefork", "-c", "2",
    "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING",
)  # fmt: skip

queue = Celery("bench", broker=os.environ[URL])
queue.conf.broker_connection_retry_on_startup = True


@queue.task(ignore_result=True)
def noop(n: int) -> int:
    started(n)
    return n


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop.delay(n)

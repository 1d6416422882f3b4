"""rq with the worker that does not fork for each job."""

from __future__ import annotations

import os

from redis import Redis
from rq import Queue

from benchmarks.apps import portions
from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("rq", "redis")
WORKER = ("-m", "rq.cli", "worker", "-u", os.environ[URL], "-w", "rq.worker.SimpleWorker", "--quiet", "bench")

queue = Queue("bench", connection=Redis.from_url(os.environ[URL]))


def noop(n: int) -> int:
    started(n)
    return n


def enqueue(numbers: range) -> None:
    for n in numbers:
        queue.enqueue(noop, n)


def bulk(numbers: range) -> None:
    for some in portions(numbers):
        queue.enqueue_many([Queue.prepare_data(noop, (n,)) for n in some])

"""dramatiq with its default middleware. Its task returns nothing: without a result backend a value is a warning."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("dramatiq", "redis")
WORKER = ("-m", "dramatiq", "benchmarks.apps.dramatiq_app", "--processes", "1", "--threads", "8")

dramatiq.set_broker(RedisBroker(url=os.environ[URL]))


@dramatiq.actor
def noop(n: int) -> None:
    started(n)


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop.send(n)

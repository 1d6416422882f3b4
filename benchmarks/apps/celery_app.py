"""celery on a Redis of its own, without a result backend."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.apps.record import started

queue = Celery("bench", broker=os.environ["DAYBREAK_BENCH_REDIS"])
queue.conf.broker_connection_retry_on_startup = True


@queue.task(ignore_result=True)
def noop(n: int) -> int:
    started(n)
    return n

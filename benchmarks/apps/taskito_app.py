"""taskito with its defaults on SQLite."""

from __future__ import annotations

import os
from pathlib import Path

from taskito import Queue

from benchmarks.apps.record import started
from benchmarks.starts import PLACE

queue = Queue(db_path=str(Path(os.environ[PLACE]) / "taskito.db"))


@queue.task()
def noop(n: int) -> int:
    started(n)
    return n


@queue.task()
async def async_noop(n: int) -> int:
    started(n)
    return n

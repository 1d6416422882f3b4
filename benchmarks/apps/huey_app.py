"""huey with its defaults on SQLite."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from huey import SqliteHuey

from benchmarks.apps.record import started
from benchmarks.starts import PLACE

logging.getLogger("huey").setLevel(logging.WARNING)
queue = SqliteHuey("bench", filename=str(Path(os.environ[PLACE]) / "huey.db"))


@queue.task()
def noop(n: int) -> int:
    started(n)
    return n

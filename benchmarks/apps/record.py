"""The first line of every measured task: when it began, and its number, appended to one file."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.starts import PLACE, RECORD, STARTS

_file = os.open(Path(os.environ[PLACE]) / STARTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def started(n: int) -> None:
    os.write(_file, RECORD.pack(time.monotonic_ns(), n))

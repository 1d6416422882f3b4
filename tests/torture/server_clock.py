"""A clock of one's own: a Python process started with this environment sees wall time shifted; steady time stays.

Daybreak reads wall time where it decides anything through `time` alone, so that is what is shifted. A datetime class of
our own would be a stranger to msgspec."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

SHIFT = "DAYBREAK_TEST_CLOCK"


def shifted(folder: Path, by: timedelta) -> dict[str, str]:
    """What Python runs first is found on its path: also in the children of the process that is started so."""
    (folder / "sitecustomize.py").write_text("import server_clock\n\nserver_clock.shift()\n")
    places = [str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {SHIFT: str(int(by.total_seconds())), "PYTHONPATH": os.pathsep.join(filter(None, places))}


def shift() -> None:
    seconds, now, now_ns = int(os.environ[SHIFT]), time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + seconds * 1_000_000_000

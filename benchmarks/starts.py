"""The start times of the tasks of a case, recorded by the tasks themselves."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

PLACE = "DAYBREAK_BENCH_PLACE"  # the environment variable that names a case's directory
STARTS = "starts"
RECORD = struct.Struct("=qq")  # the monotonic nanosecond, the number
LONGEST_WAIT = 600


class Starts:
    def __init__(self, place: Path) -> None:
        self._file = place / STARTS

    def __len__(self) -> int:
        return self._file.stat().st_size // RECORD.size if self._file.exists() else 0

    def read(self) -> list[tuple[int, int]]:
        """Monotonic nanosecond and number of each start, in the order of time."""
        return sorted(RECORD.iter_unpack(self._file.read_bytes()))

    def forget(self) -> None:
        """Delete all records; processes that append continue to append."""
        self._file.write_bytes(b"")


def wait_until(holds: Callable[[], bool], what: str, *, every: float = 0.002, within: float = LONGEST_WAIT) -> None:
    end = time.monotonic() + within
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come about within {within:g} s")
        time.sleep(every)

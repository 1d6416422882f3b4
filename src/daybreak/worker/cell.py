"""A few bytes that a child shares with its supervisor: which work it has begun, and since when it is at it.

Written without a system call at every job, and still there when the child is not."""

from __future__ import annotations

import mmap
import struct
import time
from typing import Final

SIZE: Final = 24
_NUMBERS: Final = struct.Struct("=qqq")
_BEGAN: Final = struct.Struct("=qq")
_AT: Final = struct.Struct("=q")


class Cell:
    """`begun`: works up to this number have begun. `at`: the job that runs now, 0 for none; `since` steady µs."""

    def __init__(self, memory: mmap.mmap | bytearray | None = None) -> None:
        self._memory = bytearray(SIZE) if memory is None else memory

    def begin(self, n: int, seq: int) -> None:
        # The time goes first: who reads the new job with the old time would think that it ran too long.
        _BEGAN.pack_into(self._memory, 8, time.monotonic_ns() // 1000, n)
        _AT.pack_into(self._memory, 0, seq)

    def rest(self) -> None:
        _AT.pack_into(self._memory, 0, 0)

    def read(self) -> tuple[int, int, int]:
        """(at, since, begun); a time that belongs to a later job than `at` only makes it look younger."""
        return _NUMBERS.unpack_from(self._memory, 0)

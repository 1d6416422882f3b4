"""Memory that a child shares with its supervisor: which jobs it is at, and since when, one place for each slot.

Written without a system call at every job, and still there when the child is not."""

from __future__ import annotations

import mmap
import struct
import time
from typing import Final

_PLACE: Final = struct.Struct("=qq")


class SlotTable:
    """Places of (seq, steady microseconds); one that was never used has seq 0, one that was left a negative one."""

    def __init__(self, slots: int, memory: mmap.mmap | bytearray | None = None) -> None:
        self._words = memoryview(bytearray(size_for(slots)) if memory is None else memory).cast("q")
        self._free = list(range(slots - 1, -1, -1))
        self._slots = slots

    # -- in the child --------------------------------------------------------------------------------------------------

    def begin(self, seq: int) -> int:
        place = self._free.pop()
        # The time goes first: who reads the new job with the old time would think that it ran too long.
        self._words[2 * place + 1] = time.monotonic_ns() // 1000
        self._words[2 * place] = seq
        return place

    def end(self, place: int) -> None:
        # Its negative stays: should its report never be read, it is known to have run.
        self._words[2 * place] = -self._words[2 * place]
        self._free.append(place)

    def blocked_by(self, seq: int) -> None:
        """The loop of this child stands still, and this job is why; 0 for none."""
        self._words[2 * self._slots] = seq

    # -- in the supervisor ---------------------------------------------------------------------------------------------

    def read(self) -> dict[int, float]:
        """Since when each job runs that has begun, in seconds of the steady clock."""
        return {seq: since / 1e6 for seq, since in self._places() if seq > 0}

    def ended(self) -> set[int]:
        """Jobs that have ended; of each place only the latest."""
        return {-seq for seq, _ in self._places() if seq < 0}

    def _places(self) -> list[tuple[int, int]]:
        return list(_PLACE.iter_unpack(bytes(self._words[: 2 * self._slots])))

    @property
    def blocker(self) -> int:
        return self._words[2 * self._slots]


def size_for(slots: int) -> int:
    return slots * 16 + 8

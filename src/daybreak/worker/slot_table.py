"""Memory that a child shares with its supervisor: for each slot, which job runs in it and since when.

The child writes it for every job without a system call, and the supervisor can still read it after the child has died.
"""

from __future__ import annotations

import mmap
import struct
import time
from typing import Final

_ENTRY: Final = struct.Struct("=qqq")
_LOW: Final = (1 << 32) - 1


class SlotTable:
    """One entry per slot: (seq, start in microseconds of the steady clock, part). After them, the job that blocks the
    loop.

    The seq is 0 in a slot that was never used, and negative in a slot whose job has ended. In a slot with a call of
    several jobs it is that of the first of them, and the part says which of them are in the function now; otherwise the
    part is 0."""

    def __init__(self, slots: int, memory: mmap.mmap | bytearray | None = None) -> None:
        self._words = memoryview(bytearray(size_for(slots)) if memory is None else memory).cast("q")
        self._free = list(range(slots - 1, -1, -1))
        self._slots = slots

    # -- in the child --------------------------------------------------------------------------------------------------

    def begin(self, seq: int, at: int | None = None, *, jobs: int = 0) -> int:
        """Record that a job starts, or a call of so many jobs, now or `at` these microseconds; return the slot it
        takes."""
        slot = self._free.pop()
        # Write the time first: a reader that saw the new job with the old time would think it has run for too long.
        self._words[3 * slot + 1] = time.monotonic_ns() // 1000 if at is None else at
        self._words[3 * slot + 2] = jobs
        self._words[3 * slot] = seq
        return slot

    def begin_part(self, slot: int, part: range, at: int | None = None) -> None:
        """Record that the function is called with these jobs of a call, now or `at` these microseconds."""
        self._words[3 * slot + 1] = time.monotonic_ns() // 1000 if at is None else at
        # One word, so that a reader never sees the beginning of one part with the end of another.
        self._words[3 * slot + 2] = part.start << 32 | part.stop

    def end(self, slot: int) -> None:
        # Negate the number instead of erasing it: if the report of the job is never read, it is known to have run.
        self._words[3 * slot] = -self._words[3 * slot]
        self._free.append(slot)

    def set_blocker(self, seq: int) -> None:
        """Record the job that blocks the event loop of this child; 0 for none."""
        self._words[3 * self._slots] = seq

    # -- in the supervisor ---------------------------------------------------------------------------------------------

    def running(self) -> dict[int, float]:
        """The jobs that have started and not ended, each with its start in seconds of the steady clock."""
        return {seq: since / 1e6 for seq, since, _ in self._entries() if seq > 0}

    def parts(self) -> dict[int, range]:
        """The calls that have started and not ended, each by its first job, with the part that is in the function."""
        return {seq: range(part >> 32, part & _LOW) for seq, _, part in self._entries() if seq > 0 and part}

    def ended(self) -> set[int]:
        """The jobs that have ended; for each slot only the latest."""
        return {-seq for seq, _, _ in self._entries() if seq < 0}

    def _entries(self) -> list[tuple[int, int, int]]:
        return list(_ENTRY.iter_unpack(bytes(self._words[: 3 * self._slots])))

    @property
    def blocker(self) -> int:
        return self._words[3 * self._slots]


def size_for(slots: int) -> int:
    """Bytes of memory for so many slots."""
    return slots * _ENTRY.size + 8

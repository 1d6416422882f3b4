"""Compares a server's clock with the local monotonic clock, to tell a jump of the server's clock from passing time.

A server offers only wall time. The store keeps an **offset** that all processes share: its steady time is the server's
wall time minus that offset. Each process compares every reply with its own monotonic clock. A process that sees the
server's clock jump asks the store to add the jump to the offset; see docs/decisions/0016."""

from __future__ import annotations

import sys
import threading
import time
from typing import Final, NamedTuple

from daybreak.system.ports import RealWorld, World

JUMP: Final = 1_000_000  # microseconds beyond the round trips; after such a jump a reaper restarts its watch
CORRECTED: Final = 5_000_000  # microseconds; the offset is corrected for larger jumps only
DRIFT: Final = 1000  # two clocks that nobody sets may drift apart by one part in this many

# A clock that also counts the time during which the machine was suspended; None where the system has none.
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)


class Reading(NamedTuple):
    """The server's time, the offset at that time, and the local times between which it was read. In microseconds."""

    wall: int
    offset: int
    asked: int
    received: int
    slept: int

    @property
    def steady(self) -> int:
        return self.wall - self.offset


class Jump(NamedTuple):
    """The server's clock jumped `by` this much between the steady times `since` and `seen`, while `offset` held."""

    offset: int
    by: int
    since: int
    seen: int

    @property
    def corrected(self) -> int:
        """The offset with which steady time continues as if the clock had not jumped."""
        return self.offset + self.by


class SteadyClock:
    """The store's steady time as this process knows it. Safe to use from several threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._newest: Reading | None = None
        self._jump: Jump | None = None
        self._jumped_at: int | None = None
        self._even_since: int | None = None

    def steady(self) -> int:
        """The local monotonic clock, in microseconds."""
        return self._world.steady()

    @property
    def offset(self) -> int:
        reading = self._reading
        return 0 if reading is None else reading.offset

    @property
    def jump(self) -> Jump | None:
        """A jump that this process saw and that is not corrected yet."""
        return self._jump

    def note(self, wall: int, asked: int, offset: int | None = None) -> None:
        """Note the server's time from a reply to a call sent at `asked`. `offset` is None if the reply has none."""
        received, slept_so_far = self._world.steady(), _slept(self._world)
        with self._lock:
            before = self._reading
            if offset is None:
                offset = 0 if before is None else before.offset
            self._newest = now = Reading(wall, offset, asked, received, slept_so_far)
            if before is None:
                self._begin(now)
                return
            # Compare steady time if the offset has changed: then another process has corrected a jump.
            is_same = offset == before.offset
            passed = now.wall - before.wall if is_same else now.steady - before.steady
            at_least, at_most = now.asked - before.received, now.received - before.asked
            if not at_least - JUMP <= passed <= at_most + JUMP:
                self._jumped_at = now.received
            slept, slack = now.slept - before.slept, CORRECTED + at_most // DRIFT
            is_even = at_least + slept - slack <= passed <= at_most + slept + slack
            if is_even or not is_same:
                self._reading, self._jump = now, None
                if not is_even:
                    self._even_since = now.steady
                return
            by = passed - slept - (at_least + at_most) // 2
            self._jump = Jump(before.offset, by, before.steady, now.steady)

    def believe(self) -> None:
        """Accept the server's time: its clock did not jump, but this process was suspended. The watch starts over."""
        with self._lock:
            if self._newest is not None:
                self._begin(self._newest)

    def _begin(self, now: Reading) -> None:
        self._reading, self._jump, self._even_since = now, None, now.steady

    def about(self) -> int | None:
        """The store's expected steady time now; None before the first reply."""
        reading = self._reading
        if reading is None:
            return None
        return reading.steady + self._world.steady() - reading.received + _slept(self._world) - reading.slept

    def at_the_earliest(self, local: int | None = None) -> int | None:
        """A lower bound of the store's steady time at a local monotonic time, by default now; too early by at most one
        reply's travel time."""
        reading = self._reading
        if reading is None:
            return None
        if local is None:
            local = self._world.steady()
        return reading.steady + local - reading.received

    def even_since(self) -> int | None:
        """The steady time since which this process has seen the server's clock run evenly."""
        return self._even_since

    def even_for(self) -> int | None:
        """How long the server's clock has run without a jump; None if this process never saw it jump."""
        with self._lock:
            return None if self._jumped_at is None else self._world.steady() - self._jumped_at


def _slept(world: World) -> int:
    """How long the machine was suspended since its start, which its monotonic clock does not count."""
    if sys.platform == "win32" or _BOOT_CLOCK is None or not isinstance(world, RealWorld):
        return 0
    return (time.clock_gettime_ns(_BOOT_CLOCK) - time.monotonic_ns()) // 1000

"""The server's time as it looks from here: what it is now at the earliest, and when it was seen to jump."""

from __future__ import annotations

import threading
from typing import NamedTuple

from daybreak.world import World

HOW_LATE = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
JUMP = 1_000_000  # microseconds beyond what the round trips explain


class Told(NamedTuple):
    """The server's time, and between which local steady times it was read. All in microseconds."""

    time: int
    asked: int
    received: int


class ServerClock:
    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._told: Told | None = None
        self._jumped_at: int | None = None

    def steady(self) -> int:
        return self._world.steady()

    def note(self, time: int, asked: int) -> None:
        """An answer that was asked for then said this time."""
        now = Told(time, asked, self._world.steady())
        with self._lock:
            if (before := self._told) is not None:
                passed = now.time - before.time
                at_least, at_most = now.asked - before.received, now.received - before.asked
                if not at_least - JUMP <= passed <= at_most + JUMP:
                    self._jumped_at = now.received
            self._told = now

    def at_the_earliest(self) -> int | None:
        """The server's time now: too early by as long as an answer takes, never too late. None: it never spoke."""
        with self._lock:
            return None if self._told is None else self._told.time + self._world.steady() - self._told.received

    def even_for(self) -> int | None:
        """For how long the server's clock has run without a jump; None if it was never seen to jump."""
        with self._lock:
            return None if self._jumped_at is None else self._world.steady() - self._jumped_at

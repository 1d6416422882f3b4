"""When to connect again: many clients that lost one server do not come back to it in the same second."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

from daybreak.system.ports import RealWorld

FIRST: Final = 0.25  # seconds over which the first tries after a loss are spread: a lone client hardly notices
SHORTEST: Final = 0.1
SHARE: Final = 3  # the mean pause, as a multiple of how long the server has been away
LONGEST: Final = 8.0  # and its bound where nobody's patience ends before
JUST_NOW: Final = 1.5  # seconds
SILENT: Final = 1.0  # a try that took so long was not refused: nobody was there to answer it


class Backoff:
    """Of one connection. Pauses grow with the outage, so that the clients of a server that was away for long come back
    spread over seconds. A caller whose patience would end before gets one try shortly before its end."""

    def __init__(self, chance: random.Random | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._chance = chance or RealWorld.chance
        self._now = now
        self._since: float | None = None
        self._tried_at = -math.inf
        self._not_before = 0.0

    def lost(self) -> None:
        """A connection that worked is gone. Saying it again changes nothing."""
        if self._since is None:
            self._since = self._now()
            self._not_before = self._since + self._chance.uniform(0, FIRST)

    def failed(self, took: float) -> None:
        """A try was in vain, after so many seconds."""
        now = self._now()
        if self._since is None:
            self._since = now - took
        self._tried_at = self._not_before = now
        if took < SILENT:
            # A server that is stopped or cut off slows its clients down by itself, and goes on without a restart.
            mean = max(SHARE * (now - self._since), SHORTEST)
            self._not_before += mean * self._chance.uniform(0.5, 1.5)

    def connected(self) -> None:
        self._since, self._not_before = None, 0.0

    def pause(self, wanted_within: float = math.inf) -> float | None:
        """Seconds to wait before the next try, always less than the caller has. None: there was a try just now, and
        the caller has no time for another one."""
        now = self._now()
        wait = self._not_before - now
        if wanted_within == math.inf:
            return max(min(wait, LONGEST * self._chance.uniform(0.5, 1.5)), 0.0)
        if wait < wanted_within:
            return max(wait, 0.0)
        if wanted_within <= 0 or max(wanted_within, now - self._tried_at) < JUST_NOW:
            return None
        return wanted_within * self._chance.uniform(0.85, 0.95)

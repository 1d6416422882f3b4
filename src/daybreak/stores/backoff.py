"""When to reconnect, so that many clients that lost one server do not all reconnect in the same second."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

from daybreak.system.patience import PATIENCE
from daybreak.system.ports import RealWorld

FIRST_SPREAD: Final = 0.25  # seconds over which clients spread their first try; a single client hardly notices
MIN_MEAN_PAUSE: Final = 0.1  # seconds
PAUSE_PER_OUTAGE: Final = 3  # the mean pause, as a multiple of how long the server has been away
# Seconds: the upper bound of the mean pause. In a long outage a client tries every 3 to 9 s, so when the server is back
# about a sixth of the clients connect in any second, and the last of them after 9 s.
MAX_MEAN_PAUSE: Final = 6.0
MIN_TIME_FOR_TRY: Final = 1.5  # seconds
NO_ANSWER: Final = 1.0  # seconds; a try that took longer was not refused: no server answered it
# Seconds. A call that ends this soon after the loss began before it or right after it: default patience and a margin.
SHORT_OUTAGE: Final = PATIENCE.total_seconds() + 0.5


class Backoff:
    """When one connection is tried again.

    Regular tries follow a schedule of their own, whose pauses grow with the outage. It does not depend on the patience
    of callers: callers that all began when the server went away would otherwise all come back in the same second. A
    caller whose patience ends before the next regular try gets an extra try, which leaves the schedule as it is. There
    is one extra try per call, and more than one only while the outage is short."""

    def __init__(self, chance: random.Random | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._chance = chance or RealWorld.chance
        self._now = now
        self._since: float | None = None
        self._tried_for = -math.inf  # when the patience of the last try's caller ends
        self._wanted_at = -math.inf  # when the patience of the next try's caller ends
        self._not_before = 0.0

    def lost(self) -> None:
        """Note that a working connection is lost. Repeated calls change nothing."""
        if self._since is None:
            self._since = self._now()
            self._not_before = self._since + self._chance.uniform(0, FIRST_SPREAD)

    def failed(self, took: float) -> None:
        """Note that a try failed after `took` seconds."""
        now = self._now()
        if self._since is None:
            self._since = now - took
        self._tried_for = max(now, self._wanted_at)
        if took >= NO_ANSWER:
            # Not spread: an unreachable server slows its clients down anyway, and needs no restart to come back.
            self._not_before = now
        elif now >= self._not_before:
            mean = min(max(PAUSE_PER_OUTAGE * (now - self._since), MIN_MEAN_PAUSE), MAX_MEAN_PAUSE)
            self._not_before = now + mean * self._chance.uniform(0.5, 1.5)

    def connected(self) -> None:
        """Note that a try succeeded."""
        self._since, self._not_before = None, 0.0

    def pause(self, wanted_within: float = math.inf) -> float | None:
        """Seconds to wait before the next try, always less than the caller has. None: the caller has had a try, and
        has no time for another one."""
        now = self._now()
        wait = max(self._not_before - now, 0.0)
        if wanted_within == math.inf:
            self._wanted_at = -math.inf
            return wait
        wanted_at = now + wanted_within
        if wait >= wanted_within:
            if not self._may_try_extra(now, wanted_at):
                return None
            wait = wanted_within * self._chance.uniform(0.5, 0.95)
        self._wanted_at = wanted_at
        return wait

    def _may_try_extra(self, now: float, wanted_at: float) -> bool:
        if wanted_at <= now:
            return False
        if wanted_at > self._tried_for + MIN_TIME_FOR_TRY:
            return True
        # A single caller should outlast a short outage, so it keeps trying while it has enough time left.
        is_short = self._since is not None and wanted_at <= self._since + SHORT_OUTAGE
        return is_short and wanted_at - now >= MIN_TIME_FOR_TRY

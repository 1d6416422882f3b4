"""The rate limit of each caller. Each server process counts by itself, so two servers allow twice as many requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

MOST_CALLERS: Final = 10_000


class RateLimit:
    """A leaky bucket per caller (GCRA): one number each, and no timer. Times are microseconds of a steady clock."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._interval = 1e6 / per_second
        self._allowance = self._interval * max(burst - 1, 0)
        self._due_at: dict[str, float] = {}

    def wait_for(self, caller: str, now: int) -> timedelta | None:
        """None if the request may pass, and it is counted; otherwise how long the caller has to wait."""
        due_at = max(self._due_at.pop(caller, 0.0), float(now))
        late = due_at - now - self._allowance
        if late > 0:
            self._due_at[caller] = due_at
            return timedelta(microseconds=late)
        # Removed and inserted again, so that the dict is in the order of the callers' latest requests.
        self._due_at[caller] = due_at + self._interval
        if len(self._due_at) > MOST_CALLERS:
            del self._due_at[next(iter(self._due_at))]
        return None

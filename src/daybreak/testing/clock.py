"""A clock with two hands that stand still until a test moves them."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

from daybreak.core.units import duration, micros, moment, span

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class HandClock:
    """A `World` in which time is moved by hand: `advance` moves both hands, `jump` the wall clock alone.

    `is_read` tells whether the store under test looks at it at all. Sleeping takes real time, as little as asked."""

    def __init__(self, start: datetime = NOON, seed: int = 0) -> None:
        self._wall = micros(start)
        self._steady = 1_000_000
        self._chance = random.Random(seed)
        self.is_read = False

    def __repr__(self) -> str:
        return f"<clock at {self.now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """What the wall clock shows, in UTC."""
        return moment(self._wall)

    def wall(self) -> int:
        self.is_read = True
        return self._wall

    def steady(self) -> int:
        self.is_read = True
        return self._steady

    @property
    def chance(self) -> random.Random:
        return self._chance

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())

    def advance(self, by: object) -> None:
        """Time passes: a timedelta, or text as in "90s" and "1h30m"."""
        passed = span(duration(by, "advance"))
        self._wall += passed
        self._steady += passed

    def jump(self, by: timedelta) -> None:
        """Someone set the wall clock, forwards or back; no time has passed."""
        self._wall += span(by)

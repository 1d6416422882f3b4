"""A clock for tests: a wall clock and a steady clock that stand still until the test moves them."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

from daybreak.core.units import duration, micros, moment, span

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class HandClock:
    """A `World` whose time the test moves: `advance` moves both clocks, `jump` only the wall clock.

    `is_read` shows whether the store under test reads the clock at all. `sleep` takes real time."""

    def __init__(self, start: datetime = NOON, seed: int = 0) -> None:
        self._wall = micros(start)
        self._steady = 1_000_000
        self._chance = random.Random(seed)
        self.is_read = False

    def __repr__(self) -> str:
        return f"<clock at {self.now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The time of the wall clock, in UTC."""
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
        """Move both clocks by a timedelta, or by text such as "90s" or "1h30m"."""
        passed = span(duration(by, "advance"))
        self._wall += passed
        self._steady += passed

    def jump(self, by: timedelta) -> None:
        """Move only the wall clock, forwards or back, as if someone set it."""
        self._wall += span(by)

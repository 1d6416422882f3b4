"""A clock with two hands that stand still until a test moves them."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

from daybreak.units import micros, span

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class HandClock:
    """A `World` in which time is moved by hand: `advance` moves both hands, `jump` the wall clock alone.

    `is_read` tells whether the store under test looks at it at all. Sleeping takes real time, as little as asked."""

    def __init__(self, start: datetime = NOON, seed: int = 0) -> None:
        self._wall = micros(start)
        self._steady = 1_000_000
        self._chance = random.Random(seed)
        self.is_read = False

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

    def advance(self, by: timedelta) -> None:
        self._wall += span(by)
        self._steady += span(by)

    def jump(self, by: timedelta) -> None:
        """Someone set the wall clock; no time has passed."""
        self._wall += span(by)

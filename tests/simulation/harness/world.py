"""Time and chance of a simulation: one steady clock, wall clocks that jump, and a die that the seed throws."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Final

from daybreak.core.units import micros

if TYPE_CHECKING:
    from harness.process import Process

BEGIN: Final = micros(datetime(2026, 3, 1, 12, tzinfo=UTC))


class SimWorld:
    """The world as the store sees it. `offset` is how far its wall clock was set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.offset = 0

    def steady(self) -> int:
        return round(self.loop.time() * 1_000_000)

    def wall(self) -> int:
        return BEGIN + self.steady() + self.offset

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())


class ProcessWorld(SimWorld):
    """The world as one process sees it: its own wall clock."""

    def __init__(self, world: SimWorld, process: Process) -> None:
        super().__init__(world.loop, world.chance)
        self._world = world
        self.process = process

    def wall(self) -> int:
        return self._world.wall() + self.offset

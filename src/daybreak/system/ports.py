"""What the program takes from outside: time, sleep and chance. Tests and the simulation bring their own."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import timedelta
from typing import Protocol


class World(Protocol):
    """Clocks are in microseconds: `wall` since 1970, may jump; `steady` from any start, never goes back."""

    def wall(self) -> int: ...

    def steady(self) -> int: ...

    async def sleep(self, delay: timedelta) -> None: ...

    @property
    def chance(self) -> random.Random: ...


# One source of chance per process; a forked child must not repeat its parent's ids.
_CHANCE = random.Random()  # noqa: S311 - for jitter and ids, not for secrets
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHANCE.seed)


class RealWorld:
    chance = _CHANCE

    def wall(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> int:
        # CLOCK_MONOTONIC: stands still while a laptop sleeps, so sleep expires no lease.
        return time.monotonic_ns() // 1000

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())


class Ids:
    """UUIDv7 identifiers, rising within one process also when the clock is set back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0

    def __call__(self) -> str:
        # 48 bits of milliseconds and 12 of their fraction, so ids made in one process sort as they were made.
        stamp = max(self._world.wall() * 4096 // 1000, self._last + 1)
        self._last = stamp
        low = 0x8000_0000_0000_0000 | self._world.chance.getrandbits(62)
        return (
            f"{stamp >> 28:08x}-{stamp >> 12 & 0xFFFF:04x}-7{stamp & 0xFFF:03x}"
            f"-{low >> 48:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
        )

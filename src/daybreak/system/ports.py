"""The ports to the outside world: time, sleep and randomness. Tests and the simulation pass their own."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Protocol


class World(Protocol):
    """Clocks, sleep and randomness. Both clocks are in microseconds."""

    def wall(self) -> int:
        """Microseconds since 1970. This clock may jump."""
        ...

    def steady(self) -> int:
        """Microseconds since an arbitrary start. This clock never goes back."""
        ...

    async def sleep(self, delay: timedelta) -> None:
        """Wait for this long."""
        ...

    @property
    def chance(self) -> random.Random:
        """The source of randomness, for jitter and ids."""
        ...


# One random source per process; a forked child must not repeat its parent's ids.
_CHANCE = random.Random()  # noqa: S311 - for jitter and ids, not for secrets
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHANCE.seed)


class RealWorld:
    """The system's clocks, asyncio's sleep, and real randomness."""

    chance = _CHANCE

    def wall(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> int:
        # CLOCK_MONOTONIC stops while a laptop is suspended, so that no lease expires meanwhile.
        return time.monotonic_ns() // 1000

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())


class Clock:
    """The steady clock of a world in seconds, and waits by it.

    Whoever must also run in virtual time reads no other clock and waits in no other way. The timers are those of the
    running event loop: a simulation has a loop whose time is that of its world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Seconds of the steady clock."""
        return self._world.steady() / 1_000_000

    def wall(self) -> float:
        """Seconds since 1970. This clock may jump."""
        return self._world.wall() / 1_000_000

    async def sleep(self, seconds: float) -> None:
        await self._world.sleep(timedelta(seconds=seconds))

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """A block that ends with TimeoutError after so many seconds."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call)

    async def wait(
        self, tasks: Collection[asyncio.Task[Any]], seconds: float, *, return_when: str = asyncio.ALL_COMPLETED
    ) -> bool:
        """Wait for these tasks for at most so many seconds. True if some of them have not ended then."""
        _, pending = await asyncio.wait(tasks, timeout=seconds, return_when=return_when)
        return bool(pending)


class Ids:
    """Makes UUIDv7 identifiers that increase within one process, even if the clock is set back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0

    def __call__(self) -> str:
        # 48 bits of milliseconds and 12 bits of their fraction, so that the ids of one process sort by creation.
        stamp = max(self._world.wall() * 4096 // 1000, self._last + 1)
        self._last = stamp
        low = 0x8000_0000_0000_0000 | self._world.chance.getrandbits(62)
        return (
            f"{stamp >> 28:08x}-{stamp >> 12 & 0xFFFF:04x}-7{stamp & 0xFFF:03x}"
            f"-{low >> 48:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
        )

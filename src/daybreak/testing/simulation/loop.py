"""An event loop on which time is a number: it jumps to the next timer, and nothing ever really sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from random import Random
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

START: Final = 1000.0  # steady clocks start anywhere, only not at zero
MOST_TURNS: Final = 2_000_000  # a simulation has some ten thousand; one that spins is a fault of its own


class Deadlock(RuntimeError):
    """Nobody can go on: no callback is ready and no timer is set."""


class SimLoop(asyncio.BaseEventLoop):
    """Virtual time, one thread, no descriptors. With `shuffle`, callbacks that are ready together run in an order
    that the seed chooses."""

    def __init__(self, chance: Random, *, shuffle: bool = False) -> None:
        super().__init__()
        self._chance = chance
        self._shuffle = shuffle
        self._virtual = START
        self._turns = 0
        self._clock_resolution = 1e-9
        self._selector = self

    def time(self) -> float:
        return self._virtual

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("no callback is ready and no timer is set")
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise Deadlock(f"{MOST_TURNS:,} turns of the loop: something spins without letting time pass")
        self._virtual += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._shuffle and len(ready) > 1:
            mixed = list(ready)
            self._chance.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)

    def _write_to_self(self) -> None:
        """Nobody waits in a select: there is nothing to interrupt."""


def run_now(work: Awaitable[T]) -> T:
    """The answer of a coroutine that never waits, as those of stores that run without threads."""
    step = cast("Coroutine[Any, Any, T]", work)
    try:
        step.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    step.close()
    raise RuntimeError(f"{step!r} waited for something: a simulated store must run to its end at once")

"""An event loop on which time is a number: it jumps to the next timer, and nothing ever really sleeps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeVar, cast

from harness.process import OWNER

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
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0

    def time(self) -> float:
        return self._virtual

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # Timers of one instant go off in the order in which they were set: nothing hangs on addresses or hashes.
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def _run_once(self) -> None:
        """One turn, as in the loop of asyncio; only that waiting means to set the clock."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise Deadlock(f"{MOST_TURNS:,} turns of the loop: something spins without letting time pass")
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._pass_time()
        while self._timers and self._timers[0][0] <= self._virtual:
            ready.append(heappop(self._timers)[2])
        if self._shuffle and len(ready) > 1:
            mixed = list(ready)
            self._chance.shuffle(mixed)
            ready.clear()
            ready.extend(mixed)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
                if owner is None or owner.may_run(handle):
                    handle._run()

    def _pass_time(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        if not self._timers:
            raise Deadlock("no callback is ready and no timer is set")
        self._virtual = max(self._virtual, self._timers[0][0])

    def resume(self, handles: Iterable[asyncio.Handle]) -> None:
        """Take these steps with the next turn."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """There are no threads: it is done at once."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        return future

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

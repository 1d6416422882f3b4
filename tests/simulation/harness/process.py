"""A process that can be killed or stopped at any step: what it started ends with it, what it sent does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harness.loop import SimLoop

OWNER: Final[ContextVar[Process | None]] = ContextVar("owner", default=None)
OUTSIDE: Final = Context()  # of what belongs to no process, such as a request on its way
MOST_AWAITS: Final = 100  # in the finally blocks of one task


class Process:
    """What runs in `context` runs only while the process is alive and not frozen: the loop asks before each step."""

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.context = Context()
        self.context.run(OWNER.set, self)
        self.gone = asyncio.Event()
        self._loop = loop
        self._is_frozen = False
        self._held_up: list[asyncio.Handle] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._at_end: list[Callable[[], object]] = []

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self._loop.create_task(work, context=self.context.copy())

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, call, *args, context=self.context)

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(call, *args, context=self.context)

    def may_run(self, step: asyncio.Handle) -> bool:
        """Whether this step is taken now. A frozen process takes it later, a dead one never."""
        if self.alive and self._is_frozen:
            self._held_up.append(step)
        return self.alive and not self._is_frozen

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)
        if not task.cancelled() and (trouble := task.exception()) is not None:
            self._loop.call_exception_handler({"message": f"{self.name} failed", "exception": trouble})

    def kill(self) -> None:
        """No further step, not even a finally block."""
        if self.alive:
            self.alive = False
            self._held_up.clear()
            self.gone.set()
            self.end()

    def at_end(self, what: Callable[[], object]) -> None:
        """What the system takes back from a process, however it ended."""
        self._at_end.append(what)

    def end(self) -> None:
        while self._at_end:
            self._at_end.pop()()

    def freeze(self, seconds: float) -> None:
        until = self._loop.time() + seconds
        if until > self.frozen_until and self.alive:
            self.frozen_until = until
            self._is_frozen = True
            self._loop.call_at(until, self._melt, context=OUTSIDE)

    def thaw(self) -> None:
        self.frozen_until = 0.0
        self._melt()

    def _melt(self) -> None:
        if self.frozen_until <= self._loop.time() and self._is_frozen:
            self._is_frozen = False
            held_up, self._held_up = self._held_up, []
            self._loop.resume(held_up)

    @property
    def is_frozen(self) -> bool:
        return self._is_frozen


def own_tasks(loop: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> asyncio.Task[Any]:
    """A task factory: whatever a process starts, however deep in a library, belongs to it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        owner.adopt(task)
    return task


def discard(task: asyncio.Task[Any]) -> None:
    """End a task that will never run again, so that the garbage collector has nothing to say of it."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work = task.get_coro()
    assert isinstance(work, Coroutine)
    with contextlib.suppress(BaseException):
        for _ in range(MOST_AWAITS):
            work.throw(asyncio.CancelledError())

"""A process that can be killed or stopped at any await: what it started ends with it, what it sent does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

_OWNER: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self._loop = loop
        self._stood = self._stands_since = 0.0
        self._goes = asyncio.Event()
        self._goes.set()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._at_end: list[Callable[[], object]] = []

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(_OWNER.set, self)
        return self._loop.create_task(work, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)
        if not task.cancelled() and (trouble := task.exception()) is not None:
            self._loop.call_exception_handler({"message": f"{self.name} failed", "exception": trouble})

    def kill(self) -> None:
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self.end()

    def at_end(self, what: Callable[[], object]) -> None:
        """What the system takes back from a process, however it ended."""
        self._at_end.append(what)

    def end(self) -> None:
        while self._at_end:
            self._at_end.pop()()

    def freeze(self, seconds: float) -> None:
        until = self._loop.time() + seconds
        if until > self.frozen_until:
            if self._goes.is_set():
                self._stands_since = self._loop.time()
            self.frozen_until = until
            self._goes.clear()
            self._loop.call_at(until, self._melt)

    def thaw(self) -> None:
        self.frozen_until = 0.0
        self._melt()

    def _melt(self) -> None:
        if self.frozen_until <= self._loop.time() and not self._goes.is_set():
            self._stood += self._loop.time() - self._stands_since
            self._goes.set()

    @property
    def ran(self) -> float:
        """Seconds in which it was not frozen: work gets on only in these."""
        return self._loop.time() - self._stood

    @property
    def is_frozen(self) -> bool:
        return not self._goes.is_set()

    async def gate(self) -> None:
        """Passes at once, or when the process goes on."""
        while not self._goes.is_set():
            await self._goes.wait()


def own_tasks(loop: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> asyncio.Task[Any]:
    """A task factory: whatever a process starts, however deep in a library, belongs to it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    owner = _OWNER.get() if context is None else context.get(_OWNER)
    if owner is not None:
        owner.adopt(task)
        if not owner.alive:
            task.cancel()
    return task

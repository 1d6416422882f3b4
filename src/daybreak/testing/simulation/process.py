"""A process that can be killed or stopped at any await: what it started ends with it, what it sent does not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

_OWNER: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(_OWNER.set, self)
        return self._loop.create_task(work, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def kill(self) -> None:
        self.alive = False
        for task in list(self._tasks):
            task.cancel()

    def freeze(self, seconds: float) -> None:
        self.frozen_until = max(self.frozen_until, self._loop.time() + seconds)

    def thaw(self) -> None:
        self.frozen_until = 0.0

    @property
    def is_frozen(self) -> bool:
        return self.frozen_until > self._loop.time()

    async def gate(self) -> None:
        """Passes at once, or when the process goes on. It looks now and then: a thaw may come early."""
        while self.frozen_until > (now := self._loop.time()):
            await asyncio.sleep(min(self.frozen_until - now, 1.0))


def own_tasks(loop: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> asyncio.Task[Any]:
    """A task factory: whatever a process starts, however deep in a library, belongs to it."""
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    owner = _OWNER.get() if context is None else context.get(_OWNER)
    if owner is not None:
        owner.adopt(task)
        if not owner.alive:
            task.cancel()
    return task

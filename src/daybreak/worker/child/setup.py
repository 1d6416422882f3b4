"""What an app's setup functions do before the first job of a child, and after its last."""

from __future__ import annotations

import contextlib
import inspect
from types import SimpleNamespace

from daybreak.tasks.registry import Setup


async def entered(setups: list[Setup], shared: SimpleNamespace) -> contextlib.AsyncExitStack:
    """Run every setup; those that yield go on after the last job."""
    async with contextlib.AsyncExitStack() as around:
        for setup in setups:
            args = (shared,) if inspect.signature(setup).parameters else ()
            if inspect.isasyncgenfunction(setup):
                await around.enter_async_context(contextlib.asynccontextmanager(setup)(*args))
            elif inspect.isgeneratorfunction(setup):
                around.enter_context(contextlib.contextmanager(setup)(*args))
            elif inspect.iscoroutinefunction(setup):
                await setup(*args)
            else:
                setup(*args)
        return around.pop_all()

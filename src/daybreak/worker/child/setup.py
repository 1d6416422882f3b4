"""Runs the setup functions of an app before the first job of a child, and finishes them after its last job."""

from __future__ import annotations

import contextlib
import inspect
from types import SimpleNamespace

from daybreak.tasks.registry import Setup


async def enter_setups(setups: list[Setup], shared: SimpleNamespace) -> contextlib.AsyncExitStack:
    """Run every setup function. Closing the returned stack resumes those that yield."""
    async with contextlib.AsyncExitStack() as stack:
        for setup in setups:
            args = (shared,) if inspect.signature(setup).parameters else ()
            if inspect.isasyncgenfunction(setup):
                await stack.enter_async_context(contextlib.asynccontextmanager(setup)(*args))
            elif inspect.isgeneratorfunction(setup):
                stack.enter_context(contextlib.contextmanager(setup)(*args))
            elif inspect.iscoroutinefunction(setup):
                await setup(*args)
            else:
                setup(*args)
        return stack.pop_all()

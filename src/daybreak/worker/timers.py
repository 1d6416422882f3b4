"""A loop whose timers are exact to microseconds: epoll counts in milliseconds and rounds up, so that a sleep of one
would often last two."""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any, Final

_COARSE: Final = 0.1  # seconds; whoever waits longer is not in a hurry


def exact_loop() -> asyncio.AbstractEventLoop:
    """The usual loop where there is no epoll, or where select() could not watch it."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    selector = _Exact()
    if selector.fileno() >= 1024:
        selector.close()
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(selector)


if hasattr(selectors, "EpollSelector"):

    class _Exact(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            if timeout is not None and 0 < timeout < _COARSE:
                select.select([self.fileno()], [], [], timeout)  # an epoll can itself be waited for, in microseconds
                timeout = 0
            return super().select(timeout)

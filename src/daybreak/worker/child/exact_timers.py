"""A loop whose timers are exact to microseconds: epoll counts in milliseconds and rounds up, so that a sleep of one
would often last two."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

_COARSE: Final = 0.1  # seconds; whoever waits longer is not in a hurry
_LARGEST: Final = 1024  # descriptors that select() can watch


if sys.platform == "linux":
    import select
    import selectors

    class _Exact(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            if timeout is not None and 0 < timeout < _COARSE:
                select.select([self.fileno()], [], [], timeout)  # an epoll can itself be waited for, in microseconds
                timeout = 0
            return super().select(timeout)

    def exact_loop() -> asyncio.AbstractEventLoop:
        selector = _Exact()
        if selector.fileno() < _LARGEST:
            return asyncio.SelectorEventLoop(selector)
        selector.close()
        return asyncio.new_event_loop()

else:

    def exact_loop() -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

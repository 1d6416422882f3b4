"""An event loop whose timers are exact to microseconds.

epoll takes its timeout in milliseconds and rounds it up, so a sleep of one millisecond would often last two."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

_MAX_EXACT: Final = 0.1  # seconds; for longer waits a millisecond does not matter
_MAX_FD: Final = 1024  # select() cannot watch file descriptors from here on


if sys.platform == "linux":
    import select
    import selectors

    class _ExactSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            if timeout is not None and 0 < timeout < _MAX_EXACT:
                # select() can wait for the epoll file descriptor itself, and takes its timeout in microseconds.
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    def exact_loop() -> asyncio.AbstractEventLoop:
        """A new event loop with exact timers, or an ordinary one where that is not possible."""
        selector = _ExactSelector()
        if selector.fileno() < _MAX_FD:
            return asyncio.SelectorEventLoop(selector)
        selector.close()
        return asyncio.new_event_loop()

else:

    def exact_loop() -> asyncio.AbstractEventLoop:
        """A new event loop."""
        return asyncio.new_event_loop()

"""Runs a worker as a process: signals, log lines, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Protocol

from daybreak.core.errors import DaybreakError
from daybreak.worker.supervisor.children import ChildImportFailed

_log = logging.getLogger("daybreak.worker")

# Seconds for which a computing thread may keep the thread that commits waiting. Python's default is 5 ms.
SWITCH_INTERVAL: Final = 0.0005


class Serving(Protocol):
    """A worker, or what is stopped like one."""

    owns_process: bool

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    def stop_from_outside(self) -> None: ...

    @property
    def is_stopping(self) -> bool: ...


def serve(make: Callable[[], Coroutine[Any, Any, Serving]], close: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Work until SIGTERM, SIGHUP or Ctrl-C: the first signal drains the worker, the second one stops it at once.

    Returns the exit code: 0 after a stop, 1 if the worker cannot go on."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        return asyncio.run(_serve(make, close))
    except KeyboardInterrupt:
        return 130


async def _serve(
    make: Callable[[], Coroutine[Any, Any, Serving]], close: Callable[[], Coroutine[Any, Any, None]]
) -> int:
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(close)
        return await _run(await make())


async def _run(worker: Serving) -> int:
    worker.owns_process = True
    with _signals(worker):
        try:
            await worker.run()
        except ChildImportFailed as error:
            _log.error("the worker cannot start: %s", error)
            return 1
        except DaybreakError as error:
            _log.error("the worker stops: %s", error)
            return 1
    return 0


def _on_hangup(worker: Serving) -> None:
    """A terminal that closes sends SIGHUP more than once, and its shell does too: do not count it as a second
    signal."""
    if not worker.is_stopping:
        worker.stop()


@contextlib.contextmanager
def _signals(worker: Serving) -> Iterator[None]:
    """Stop the worker on signals. The handlers run on the event loop, never in the middle of a step of it."""
    loop = asyncio.get_running_loop()
    handlers: dict[int, Callable[[], None]] = {signal.SIGINT: worker.stop, signal.SIGTERM: worker.stop}
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        handlers[signal.SIGHUP] = lambda: _on_hangup(worker)
    before = {}
    for number, handler in handlers.items():
        try:
            loop.add_signal_handler(number, handler)
        except (NotImplementedError, RuntimeError):  # Windows
            before[number] = signal.signal(number, lambda *_: worker.stop_from_outside())
    try:
        yield
    finally:
        for number in handlers:
            if number in before:
                signal.signal(number, before[number])
            else:
                loop.remove_signal_handler(number)

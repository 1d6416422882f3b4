"""A worker as a process of its own: signals, log lines, and an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from daybreak.core.errors import DaybreakError
from daybreak.worker.supervisor.children import ChildImportFailed
from daybreak.worker.supervisor.worker import Worker

_log = logging.getLogger("daybreak.worker")

# Every 5 ms, Python's default, is how long a computing thread keeps the one that commits waiting.
SWITCH = 0.0005


def serve(make: Callable[[], Coroutine[Any, Any, Worker]], close: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Work until SIGTERM, SIGHUP or Ctrl-C: the first drains, the second stops now. 0 after a stop, 1 if work cannot go
    on."""
    sys.setswitchinterval(SWITCH)
    try:
        return asyncio.run(_serve(make, close))
    except KeyboardInterrupt:
        return 130


async def _serve(
    make: Callable[[], Coroutine[Any, Any, Worker]], close: Callable[[], Coroutine[Any, Any, None]]
) -> int:
    async with contextlib.AsyncExitStack() as around:
        around.push_async_callback(close)
        return await _run(await make())


async def _run(worker: Worker) -> int:
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


def _hang_up(worker: Worker) -> None:
    """A terminal that closes says so more than once, its shell too: that is no second signal."""
    if not worker.is_stopping:
        worker.stop()


@contextlib.contextmanager
def _signals(worker: Worker) -> Iterator[None]:
    """The loop hears signals between two steps, never in the midst of one."""
    loop = asyncio.get_running_loop()
    heard: dict[int, Callable[[], None]] = {signal.SIGINT: worker.stop, signal.SIGTERM: worker.stop}
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
        heard[signal.SIGHUP] = lambda: _hang_up(worker)
    before = {}
    for number, stop in heard.items():
        try:
            loop.add_signal_handler(number, stop)
        except (NotImplementedError, RuntimeError):  # Windows
            before[number] = signal.signal(number, lambda *_: worker.stop_from_outside())
    try:
        yield
    finally:
        for number in heard:
            if number in before:
                signal.signal(number, before[number])
            else:
                loop.remove_signal_handler(number)

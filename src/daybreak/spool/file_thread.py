"""The thread in which coroutines use a spool file, so that a commit does not block their event loop.

Not an executor's thread: executors refuse work while the interpreter shuts down, when jobs may still be forwarded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class FileThread:
    """Calls functions one after the other. The thread starts with the first call; a forked child starts its own."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._pid = 0

    async def call(self, function: Callable[[], T]) -> T:
        """Call the function in the thread, and return or raise its outcome."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._pid != os.getpid():
            self._pid, self._calls = os.getpid(), queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._calls,), name="daybreak-spool", daemon=True).start()
        self._calls.put((function, future, loop))
        return await future


def _serve(calls: queue.SimpleQueue[_Call]) -> None:
    while True:
        function, future, loop = calls.get()
        try:
            result, error = function(), None
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's loop
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the caller's loop was closed meanwhile
            loop.call_soon_threadsafe(_answer, future, result, error)
        del function, future, loop, result, error  # do not keep the last call's objects alive while waiting


def _answer(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

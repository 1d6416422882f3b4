"""A thread for a library whose calls block. A call that never returns keeps neither the loop nor the process alive."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple[Callable[[], Any], "concurrent.futures.Future[Any]"]


class CallThread:
    """Makes calls one after the other. The thread starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Call the function in the thread. If the caller is cancelled meanwhile, the call continues."""
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._calls.put((function, future))
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """End the thread after the calls that wait."""
        self._calls.put(None)


def _run(calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        function, future = call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
        del call, function, future

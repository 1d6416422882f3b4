"""A thread in which users' functions are called, one after the other, while nobody waits for them."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import logging
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from daybreak.core.events import Event

_log = logging.getLogger("daybreak.hooks")

MAX_WAITING_CALLS: Final = 10_000  # calls that may wait
CLOSED_WITHIN: Final = timedelta(seconds=5)

_Future = concurrent.futures.Future[BaseException | None]
_Asked = tuple[Callable[[Event], Any], Event | None, _Future | None]

_callers: weakref.WeakSet[Caller] = weakref.WeakSet()
_left_behind: list[object] = []  # in a forked child: the parent's queues, with locks that its threads may have held


class Caller:
    """Calls functions one after the other, in a thread that begins with the first."""

    def __init__(self, name: str, most: int = MAX_WAITING_CALLS) -> None:
        self.most = most
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        _callers.add(self)

    def offer(self, function: Callable[[Event], Any], event: Event) -> bool:
        """Have it called soon; False if too many wait already."""
        with self._lock:
            if self._calls.qsize() >= self.most:
                return False
            self._begin()
            self._calls.put((function, event, None))
        return True

    async def ask(self, function: Callable[[Event], Any], event: Event) -> BaseException | None:
        """What it raised, once it has ended. Answered, not raised: SystemExit or StopIteration would do harm here."""
        return await asyncio.wrap_future(self._ask(function, event))

    def _ask(self, function: Callable[[Event], Any], event: Event | None) -> _Future:
        future: _Future = concurrent.futures.Future()
        with self._lock:
            self._begin()
            self._calls.put((function, event, future))
        return future

    def flush(self, within: timedelta) -> bool:
        """Wait until everything before this was called; False if that takes longer."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        done = self._ask(lambda _: None, None)
        concurrent.futures.wait([done], within.total_seconds())
        return done.done()

    def close(self, within: timedelta) -> None:
        """Call what waits, and end the thread. What is offered later begins another."""
        with self._lock:
            thread, calls = self._thread, self._calls
            self._thread, self._calls = None, queue.SimpleQueue()
        if thread is None:
            return
        calls.put(None)
        if thread is not threading.current_thread() and within:
            thread.join(within.total_seconds())
            if thread.is_alive():
                _log.warning("a hook still runs after %g s and is left to itself", within.total_seconds())

    def _begin(self) -> None:
        if self._thread is None:
            _end_with_the_process()
            self._thread = threading.Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's, and so is what it was to call."""
        _left_behind.append((self._lock, self._calls, self._thread))
        self._lock, self._calls, self._thread = threading.Lock(), queue.SimpleQueue(), None


def _serve(calls: queue.SimpleQueue[_Asked | None]) -> None:
    runner = asyncio.Runner()  # for functions that are async; its loop is made with the first
    try:
        while (asked := calls.get()) is not None:
            function, event, future = asked
            if future is None:
                call(function, event, runner)
            elif future.set_running_or_notify_cancel():
                future.set_result(_trouble(function, event, runner))
            del asked, function, event, future  # nothing is kept alive by what was called last
    finally:
        runner.close()


def call(function: Callable[[Event], Any], event: Event | None, runner: asyncio.Runner | None) -> None:
    """Call it here, and log what it raises."""
    if (error := _trouble(function, event, runner)) is not None and event is not None:
        name = getattr(function, "__name__", repr(function))
        _log.error("hook %s failed at %s of job %s", name, event.kind, event.job, exc_info=error)


def _trouble(
    function: Callable[[Event], Any], event: Event | None, runner: asyncio.Runner | None
) -> BaseException | None:
    try:
        _wait_for(function(event), runner)  # type: ignore[arg-type]
    except BaseException as error:  # noqa: BLE001 - harms nothing, not even by SystemExit
        return error
    return None


def _wait_for(returned: object, runner: asyncio.Runner | None) -> None:
    if inspect.isawaitable(returned):
        if runner is None:
            raise TypeError("a plain function that returns an awaitable cannot be called in place: write async def")
        runner.run(_awaited(returned))


async def _awaited(what: Awaitable[object]) -> None:
    await what


_ends_with_the_process = False


def _end_with_the_process() -> None:
    """Tell what happened last before the interpreter ends. Asked for late, so that it comes before the portals close:
    a hook may use them."""
    global _ends_with_the_process  # noqa: PLW0603
    if not _ends_with_the_process:
        _ends_with_the_process = True
        atexit.register(_at_exit)


def _at_exit() -> None:
    for caller in list(_callers):
        caller.close(CLOSED_WITHIN)


def _after_fork() -> None:
    for caller in list(_callers):
        caller.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

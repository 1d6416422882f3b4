"""A thread that calls users' hook functions one after the other, so that nothing else waits for them."""

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

MAX_WAITING_CALLS: Final = 10_000
CLOSE_TIMEOUT: Final = timedelta(seconds=5)

_Future = concurrent.futures.Future[BaseException | None]
_Call = tuple[Callable[[Event], Any], Event | None, _Future | None]

_threads: weakref.WeakSet[HookThread] = weakref.WeakSet()
# In a forked child: the parent's queues and locks. The parent's threads may have held the locks at the fork, so these
# objects must be neither used nor freed here.
_inherited: list[object] = []


class HookThread:
    """Calls functions one after the other, in a thread that is started for the first call."""

    def __init__(self, name: str, max_waiting: int = MAX_WAITING_CALLS) -> None:
        self.max_waiting = max_waiting
        self._name = name
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        _threads.add(self)

    def offer(self, function: Callable[[Event], Any], event: Event) -> bool:
        """Queue a call, and do not wait for it. Returns False if too many calls are waiting already."""
        with self._lock:
            if self._calls.qsize() >= self.max_waiting:
                return False
            self._start()
            self._calls.put((function, event, None))
        return True

    async def call(self, function: Callable[[Event], Any], event: Event) -> BaseException | None:
        """Call the function, wait for its end, and return what it raised.

        The error is returned, not raised: a SystemExit or a StopIteration would do harm in a coroutine."""
        return await asyncio.wrap_future(self._submit(function, event))

    def _submit(self, function: Callable[[Event], Any], event: Event | None) -> _Future:
        future: _Future = concurrent.futures.Future()
        with self._lock:
            self._start()
            self._calls.put((function, event, future))
        return future

    def flush(self, timeout: timedelta) -> bool:
        """Wait until all calls queued before this one have ended. Returns False after `timeout`."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        done = self._submit(lambda _: None, None)
        concurrent.futures.wait([done], timeout.total_seconds())
        return done.done()

    def close(self, timeout: timedelta) -> None:
        """Make the waiting calls, then end the thread. A call that is offered later starts a new thread."""
        with self._lock:
            thread, calls = self._thread, self._calls
            self._thread, self._calls = None, queue.SimpleQueue()
        if thread is None:
            return
        calls.put(None)
        if thread is not threading.current_thread() and timeout:
            thread.join(timeout.total_seconds())
            if thread.is_alive():
                _log.warning(
                    "a hook is still running after %g s; not waiting for it any longer", timeout.total_seconds()
                )

    def _start(self) -> None:
        if self._thread is None:
            _register_at_exit()
            self._thread = threading.Thread(target=_make_calls, args=(self._calls,), name=self._name, daemon=True)
            self._thread.start()

    def reset_after_fork(self) -> None:
        """Start empty in a forked child: the thread and the waiting calls belong to the parent."""
        _inherited.append((self._lock, self._calls, self._thread))
        self._lock, self._calls, self._thread = threading.Lock(), queue.SimpleQueue(), None


def _make_calls(calls: queue.SimpleQueue[_Call | None]) -> None:
    runner = asyncio.Runner()  # for async functions; it creates its loop at the first of them
    try:
        while True:
            waiting = calls.get()
            if waiting is None:
                return
            function, event, future = waiting
            if future is None:
                call_and_log(function, event, runner)
            elif future.set_running_or_notify_cancel():
                future.set_result(_error_of(function, event, runner))
            del waiting, function, event, future  # do not keep the last call's objects alive while waiting
    finally:
        runner.close()


def call_and_log(function: Callable[[Event], Any], event: Event | None, runner: asyncio.Runner | None) -> None:
    """Call the function in the current thread, and log what it raises."""
    error = _error_of(function, event, runner)
    if error is not None and event is not None:
        name = getattr(function, "__name__", repr(function))
        _log.error("hook %s failed for event %s of job %s", name, event.kind, event.job, exc_info=error)


def _error_of(
    function: Callable[[Event], Any], event: Event | None, runner: asyncio.Runner | None
) -> BaseException | None:
    """Call the function and return what it raised, or None."""
    try:
        _wait_for(function(event), runner)  # type: ignore[arg-type]
    except BaseException as error:  # noqa: BLE001 - not even a SystemExit of a hook may end the process
        return error
    return None


def _wait_for(returned: object, runner: asyncio.Runner | None) -> None:
    if inspect.isawaitable(returned):
        if runner is None:
            raise TypeError(
                "a hook is a plain function that returns an awaitable; define it with async def, so that it is awaited"
            )
        runner.run(_await(returned))


async def _await(awaitable: Awaitable[object]) -> None:
    await awaitable


_is_registered_at_exit = False


def _register_at_exit() -> None:
    """Have the waiting calls made before the interpreter exits.

    This is registered at the first call, not at import: exit handlers run in reverse order, and this one must run
    before the portals close, because a hook may use them."""
    global _is_registered_at_exit  # noqa: PLW0603
    if not _is_registered_at_exit:
        _is_registered_at_exit = True
        atexit.register(_at_exit)


def _at_exit() -> None:
    for thread in list(_threads):
        thread.close(CLOSE_TIMEOUT)


def _after_fork() -> None:
    for thread in list(_threads):
        thread.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

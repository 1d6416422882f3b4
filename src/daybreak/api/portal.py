"""The blocking API: one thread with an event loop runs the async methods while their callers wait."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from enum import Enum
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("daybreak")

SIGNAL_CHECK: Final = 0.5  # seconds; the longest delay of Ctrl-C on platforms where a signal does not end a wait
CANCEL_TIMEOUT: Final = timedelta(seconds=1)  # how long an interrupted caller waits until its coroutine has ended
CLOSE_TIMEOUT: Final = timedelta(seconds=10)

_portals: weakref.WeakSet[Portal] = weakref.WeakSet()
_parent_objects: list[object] = []  # in a forked child: keeps the parent's objects from being closed or collected
_is_shutting_down = False


class Portal:
    """Runs coroutines for threads that wait for them, in one thread that starts with the first coroutine.

    In a forked child the portal is back in its initial state. Objects that were opened through it belong to the parent:
    `generation` has changed, and their owner must drop them without closing them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._generation = 0
        self._on_fork: list[Callable[[], None]] = []
        self._on_close: list[Callable[[], Awaitable[object]]] = []
        _portals.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The running loop. None before the first coroutine, after a fork and after close."""
        return self._loop

    @property
    def generation(self) -> int:
        """A number that changes at every fork and every close. Objects of an earlier generation must not be used."""
        return self._generation

    @property
    def is_here(self) -> bool:
        """Whether this is the portal's own thread, where a blocking call would deadlock."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def on_fork(self, forget: Callable[[], None]) -> None:
        """Register a function that is called in every forked child."""
        self._on_fork.append(forget)

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Register a coroutine function that runs on the loop before the loop ends, also at interpreter exit. The last
        one registered runs first."""
        self._on_close.append(close)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine, and return or raise its outcome. Ctrl-C cancels it. If an event loop runs in this thread,
        it is blocked meanwhile."""
        call = _Call(work)
        try:
            self._start(call)
            call.wait()
        except BaseException:
            call.give_up()
            raise
        return call.outcome()

    def spawn(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run the coroutine without waiting. From another loop: `await asyncio.wrap_future(portal.spawn(work))`."""
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._started_loop())
        except BaseException:
            work.close()
            raise

    def run_iter(self, source: AsyncIterator[T]) -> BlockingIterator[T]:
        """Iterate over an async iterator. Each item is fetched when it is requested."""
        return BlockingIterator(self, source)

    def _start(self, call: _Call[Any]) -> None:
        if self.is_here:
            raise RuntimeError("a blocking call inside the portal's own loop would deadlock: await its async twin")
        with self._lock:
            # Under the lock, so that the call cannot be scheduled after the stop event: it would never run.
            call.loop = self._started_loop()
            call.loop.call_soon_threadsafe(call.start)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            if _is_shutting_down:
                raise RuntimeError("the interpreter is shutting down: no new call can start")
            loop, stop = asyncio.new_event_loop(), asyncio.Event()
            self._thread = threading.Thread(target=self._serve, args=(loop, stop), name="daybreak-portal", daemon=True)
            self._thread.start()
            self._loop, self._stop = loop, stop
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._until(stop))
        except RuntimeError:
            # The runner joins the loop's executor in a new thread, and an interpreter that exits starts no threads.
            if not _is_shutting_down:
                raise

    async def _until(self, stop: asyncio.Event) -> None:
        await stop.wait()
        for close in reversed(self._on_close):
            try:
                await close()
            except Exception:  # noqa: BLE001 - the others must still be closed
                _log.exception("a connection could not be closed cleanly")

    # -- close ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the loop and cancel the coroutines that still run on it. A later call starts a new loop. Closing twice
        is allowed."""
        if self.is_here:
            raise RuntimeError("the portal cannot wait for its own end: close it from another thread")
        with self._lock:
            loop, thread, stop = self._loop, self._thread, self._stop
            if loop is None or thread is None or stop is None:
                return
            self._loop = self._thread = self._stop = None
            self._generation += 1
            loop.call_soon_threadsafe(stop.set)
        thread.join(CLOSE_TIMEOUT.total_seconds())
        if thread.is_alive():
            _log.warning("the event loop of blocking calls did not stop within %s: leaving it running", CLOSE_TIMEOUT)

    def _forget(self) -> None:
        if self._loop is not None:
            _parent_objects.append((self._loop, self._thread, self._stop))
        self._lock = threading.Lock()
        self._loop = self._thread = self._stop = None
        self._generation += 1
        for forget in self._on_fork:
            try:
                forget()
            except Exception:  # noqa: BLE001 - the other functions must still be called
                _log.exception("a function failed that resets a forked child")


class _Call(Generic[T]):
    """One coroutine, and the thread that waits for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._is_done = False
        self._done = threading.Lock()
        self._done.acquire()

    # on the loop

    def start(self) -> None:
        # The task runs in a copy of the caller's context, which call_soon_threadsafe has passed on.
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._task.add_done_callback(self._after)

    async def _serve(self) -> None:
        try:
            self._results.append(await self._work)
        except BaseException as error:  # noqa: BLE001 - SystemExit also goes to the caller, and must not end the loop
            self._error = error
        self._finish()

    def _after(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before it started
            self._drop()

    def cancel(self) -> None:
        if self._task is None:
            self._drop()
        else:
            self._task.cancel()

    def _drop(self) -> None:
        self._work.close()
        self._error = asyncio.CancelledError()
        self._finish()

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._done.release()

    # in the thread that waits

    def wait(self) -> None:
        while not self._done.acquire(timeout=SIGNAL_CHECK):
            pass

    def give_up(self) -> None:
        """Cancel the coroutine, and wait for a short time until it has ended."""
        if self.loop is None:
            self._work.close()
        elif not self._is_done:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and all its coroutines have ended
                self.loop.call_soon_threadsafe(self.cancel)
                self._done.acquire(timeout=CANCEL_TIMEOUT.total_seconds())

    def outcome(self) -> T:
        error, self._error = self._error, None
        if error is None:
            return self._results[0]
        try:
            if isinstance(error, asyncio.CancelledError):
                raise concurrent.futures.CancelledError("the call was cancelled because the app was closed") from error
            raise error
        finally:
            del error  # otherwise the exception and this frame would refer to each other


class _Ended(Enum):
    ENDED = "no more items"


class BlockingIterator(Iterator[T]):
    """Iterates over an async iterator. If the iteration stops early, `close` or `with` closes the source at once;
    otherwise garbage collection closes it later."""

    def __init__(self, portal: Portal, source: AsyncIterator[T]) -> None:
        self._portal = portal
        self._source: AsyncIterator[T] | None = source

    def __next__(self) -> T:
        if self._source is None:
            raise StopIteration
        item = self._portal.run(_next(self._source))
        if isinstance(item, _Ended):
            self._source = None
            raise StopIteration
        return item

    def close(self) -> None:
        # An async generator that is only dropped is closed by its loop.
        source, self._source = self._source, None
        if (aclose := getattr(source, "aclose", None)) is not None:
            self._portal.run(aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(source: AsyncIterator[T]) -> T | _Ended:
    return await anext(source, _Ended.ENDED)


# -- twins -------------------------------------------------------------------------------------------------------------


class Ported(Protocol):
    """An object whose async methods have blocking twins."""

    @property
    def _portal(self) -> Portal: ...


S = TypeVar("S", bound=Ported)


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Return the blocking twin of an async method, with the same signature.

    In the body of a class: `result = blocking(aresult)`."""

    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        portal = self._portal
        _refuse_inside(portal, method)
        return portal.run(method(self, *args, **kwargs))

    return _named_after(twin, method)


def blocking_iter(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[S, P], BlockingIterator[T]]:
    """Return the blocking twin of a method that returns an async iterator.

    In the body of a class: `events = blocking_iter(aevents)`."""

    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[T]:
        portal = self._portal
        _refuse_inside(portal, method)
        return portal.run_iter(method(self, *args, **kwargs))

    return _named_after(twin, method)


Twin = TypeVar("Twin", bound=Callable[..., Any])


def _named_after(twin: Twin, method: Callable[..., Any]) -> Twin:
    functools.update_wrapper(twin, method)
    owner, _, name = method.__qualname__.rpartition(".")
    twin.__name__ = _blocking_name(name)
    twin.__qualname__ = f"{owner}.{twin.__name__}" if owner else twin.__name__
    return twin


def _blocking_name(name: str) -> str:
    return name.removeprefix("a").rstrip("_")  # `await_` needs its underscore, `wait` does not


def _refuse_inside(portal: Portal, method: Callable[..., Any]) -> None:
    if portal.is_here:
        name = method.__name__
        raise RuntimeError(f"{_blocking_name(name)}() in the portal's own loop would deadlock: use {name}()")


# -- fork and exit -----------------------------------------------------------------------------------------------------


def _after_fork() -> None:
    for portal in list(_portals):
        portal._forget()  # noqa: SLF001


def _at_exit() -> None:
    global _is_shutting_down  # noqa: PLW0603
    _is_shutting_down = True
    for portal in list(_portals):
        portal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
# `atexit` runs after the non-daemon threads have ended; until then they may still make calls.
atexit.register(_at_exit)

"""The blocking face: one thread with an event loop, in which async methods run while their callers wait."""

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

GLANCE: Final = 0.5  # seconds; where a wait cannot be interrupted by a signal, Ctrl-C is heard this late
GIVEN_UP_WITHIN: Final = timedelta(seconds=1)  # how long an interrupted caller waits for its work to end
CLOSED_WITHIN: Final = timedelta(seconds=10)

_portals: weakref.WeakSet[Portal] = weakref.WeakSet()
_left_behind: list[object] = []  # in a forked child: what is the parent's is neither closed nor collected
_is_ending = False


class Portal:
    """Runs coroutines for threads that wait for them, in one thread that starts with the first.

    After a fork the child has a portal that has not begun. What was opened through it is the parent's: `generation` has
    moved, and whoever keeps such things drops them, unclosed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event | None = None
        self._generation = 0
        self._on_fork: list[Callable[[], None]] = []
        self._on_close: list[Callable[[], Awaitable[object]]] = []
        _portals.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Where things run; None before the first, after a fork and after close."""
        return self._loop

    @property
    def generation(self) -> int:
        """Another number after every fork and every close: what belonged to the former loop is not to be used."""
        return self._generation

    @property
    def is_here(self) -> bool:
        """Whether this is the portal's own thread, in which nobody can wait for it."""
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def on_fork(self, forget: Callable[[], None]) -> None:
        """Have this called in every forked child."""
        self._on_fork.append(forget)

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have this run in the loop before it ends, the last one first; also when the interpreter ends."""
        self._on_close.append(close)

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine answers or raises; Ctrl-C cancels it. A loop that runs in this thread stands still."""
        call = _Call(work)
        try:
            self._begin(call)
            call.wait()
        except BaseException:
            call.give_up()
            raise
        return call.answer()

    def spawn(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run it and wait elsewhere; in another loop: `await asyncio.wrap_future(portal.spawn(work))`."""
        try:
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._begun())
        except BaseException:
            work.close()
            raise

    def run_iter(self, source: AsyncIterator[T]) -> BlockingIterator[T]:
        """The items of an async iterator, each fetched when it is asked for."""
        return BlockingIterator(self, source)

    def _begin(self, call: _Call[Any]) -> None:
        if self.is_here:
            raise RuntimeError(
                "a blocking call inside the portal's own loop would wait for itself: await its async twin"
            )
        with self._lock:
            # Before the end was asked for, or not at all: what is asked for later would never be run.
            call.loop = self._begun()
            call.loop.call_soon_threadsafe(call.begin)

    def _begun(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            if _is_ending:
                raise RuntimeError("the interpreter is ending: nothing new can be asked for")
            loop, end = asyncio.new_event_loop(), asyncio.Event()
            self._thread = threading.Thread(target=self._serve, args=(loop, end), name="daybreak-portal", daemon=True)
            self._thread.start()
            self._loop, self._end = loop, end
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop, end: asyncio.Event) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._until(end))
        except RuntimeError:
            # An interpreter that ends starts no more threads, and the loop's executor is waited for in one.
            if not _is_ending:
                raise

    async def _until(self, end: asyncio.Event) -> None:
        await end.wait()
        for close in reversed(self._on_close):
            try:
                await close()
            except Exception:  # noqa: BLE001 - the others are closed all the same
                _log.exception("while closing")

    # -- ending --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the loop; whatever still runs there is cancelled. Asking again begins another. Closing twice is fine."""
        if self.is_here:
            raise RuntimeError("the portal cannot wait for its own end: close it from another thread")
        with self._lock:
            loop, thread, end = self._loop, self._thread, self._end
            if loop is None or thread is None or end is None:
                return
            self._loop = self._thread = self._end = None
            self._generation += 1
            loop.call_soon_threadsafe(end.set)
        thread.join(CLOSED_WITHIN.total_seconds())
        if thread.is_alive():
            _log.warning("what runs for blocking callers did not end within %s and is left to itself", CLOSED_WITHIN)

    def _forget(self) -> None:
        if self._loop is not None:
            _left_behind.append((self._loop, self._thread, self._end))
        self._lock = threading.Lock()
        self._loop = self._thread = self._end = None
        self._generation += 1
        for forget in self._on_fork:
            try:
                forget()
            except Exception:  # noqa: BLE001 - the others forget all the same
                _log.exception("after a fork")


class _Call(Generic[T]):
    """One coroutine, and the thread that waits for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._answers: list[T] = []
        self._trouble: BaseException | None = None
        self._is_done = False
        self._done = threading.Lock()
        self._done.acquire()

    # in the loop

    def begin(self) -> None:
        # In a copy of the caller's context, which came with this call.
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._task.add_done_callback(self._after)

    async def _serve(self) -> None:
        try:
            self._answers.append(await self._work)
        except BaseException as error:  # noqa: BLE001 - SystemExit too is for the caller, and must not end the loop
            self._trouble = error
        self._finish()

    def _after(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before it began
            self._drop()

    def cancel(self) -> None:
        if self._task is None:
            self._drop()
        else:
            self._task.cancel()

    def _drop(self) -> None:
        self._work.close()
        self._trouble = asyncio.CancelledError()
        self._finish()

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._done.release()

    # in the thread that waits

    def wait(self) -> None:
        while not self._done.acquire(timeout=GLANCE):
            pass

    def give_up(self) -> None:
        """Have the work cancelled, and wait a little for its end."""
        if self.loop is None:
            self._work.close()
        elif not self._is_done:
            with contextlib.suppress(RuntimeError):  # the loop has closed, and all its work has ended
                self.loop.call_soon_threadsafe(self.cancel)
                self._done.acquire(timeout=GIVEN_UP_WITHIN.total_seconds())

    def answer(self) -> T:
        error, self._trouble = self._trouble, None
        if error is None:
            return self._answers[0]
        try:
            if isinstance(error, asyncio.CancelledError):
                raise concurrent.futures.CancelledError(
                    "cancelled, as all that runs when its portal is closed"
                ) from error
            raise error
        finally:
            del error  # or it would hold itself, by way of this frame


class _Ended(Enum):
    ENDED = "no more items"


class BlockingIterator(Iterator[T]):
    """The items of an async iterator. One that is dropped early is closed: soon, or at once by `close` or `with`."""

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
        # An async generator that is merely dropped is closed by its loop.
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
    """One whose async methods have blocking twins."""

    @property
    def _portal(self) -> Portal: ...


S = TypeVar("S", bound=Ported)


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """An async method's twin that waits, of the same signature.

    In the body of a class: `result = blocking(aresult)`."""

    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        portal = self._portal
        _refuse_inside(portal, method)
        return portal.run(method(self, *args, **kwargs))

    return _named_after(twin, method)


def blocking_iter(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
) -> Callable[Concatenate[S, P], BlockingIterator[T]]:
    """The same for a method that answers an async iterator.

    In the body of a class: `events = blocking_iter(aevents)`."""

    def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[T]:
        portal = self._portal
        _refuse_inside(portal, method)
        return portal.run_iter(method(self, *args, **kwargs))

    return _named_after(twin, method)


Twin = TypeVar("Twin", bound=Callable[..., Any])


def _named_after(twin: Twin, method: Callable[..., Any]) -> Twin:
    functools.update_wrapper(twin, method)
    place, _, name = method.__qualname__.rpartition(".")
    twin.__name__ = _blocking_name(name)
    twin.__qualname__ = f"{place}.{twin.__name__}" if place else twin.__name__
    return twin


def _blocking_name(name: str) -> str:
    return name.removeprefix("a").rstrip("_")  # await_ cannot do without its underscore, wait can


def _refuse_inside(portal: Portal, method: Callable[..., Any]) -> None:
    if portal.is_here:
        name = method.__name__
        raise RuntimeError(f"{_blocking_name(name)}() in the portal's own loop would wait for itself: use {name}()")


# -- the process -------------------------------------------------------------------------------------------------------


def _after_fork() -> None:
    for portal in list(_portals):
        portal._forget()  # noqa: SLF001


def _at_exit() -> None:
    global _is_ending  # noqa: PLW0603
    _is_ending = True
    for portal in list(_portals):
        portal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
# After threads that are not daemons have ended, which may still ask for something.
atexit.register(_at_exit)

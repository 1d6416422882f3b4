"""An open file: its connections and the threads that use them. Replaced as a whole, so nobody sees half of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.sqlite.engine import Engine, Place, Request
from daybreak.stores.sqlite.reader import Reader
from daybreak.stores.sqlite.wake import Wake
from daybreak.stores.sqlite.write_lock import WriteLock
from daybreak.stores.sqlite.writer import Writer, deliver
from daybreak.stores.wakeups import Wakeups

T = TypeVar("T")


class OpenStore:
    """What a store has only while it is open."""

    def __init__(
        self, place: Place, write_lock: WriteLock, engine: Engine, wake: Wake, hub: Wakeups, *, threaded: bool
    ) -> None:
        self.wake = wake
        self._pid = os.getpid()
        self._write_lock = write_lock
        self._engine = engine
        self._hub = hub
        self._writer = Writer(engine, self._changed) if threaded else None
        # Searches may take long; reading one job must not wait behind them.
        self._quick = ReadingThread(Reader(place, engine), threaded=threaded)
        self._long = ReadingThread(Reader(place, engine), threaded=threaded)

    @property
    def is_ours(self) -> bool:
        """False in a child that was forked since: the threads and locks belong to the parent."""
        return self._pid == os.getpid()

    async def write(self, request: Request) -> Any:
        return self._write_here(request) if self._writer is None else await self._writer.ask(request)

    def write_now(self, request: Request) -> Any:
        return self._write_here(request) if self._writer is None else self._writer.ask_now(request)

    def _write_here(self, request: Request) -> Any:
        with self._engine.using:
            [answer], topics = self._engine.run([request])
            self._changed(topics)
            self._engine.maintain()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def own_loop(self) -> None:
        if self._writer is not None:
            self._writer.on_loop = True

    def times(self, now: datetime | None) -> tuple[int, int]:
        return self._engine.times(now)

    def steady_at(self, local: int) -> int:
        return self._engine.steady_at(local)

    async def read(self, request: Request, *, long: bool = False) -> Any:
        return await (self._long if long else self._quick).read(request)

    async def has_changed(self) -> bool:
        return await self._quick.has_changed()

    def _changed(self, topics: set[str]) -> None:
        if topics:
            self._hub.wake(topics)
            self.wake.send(topics)

    def close(self) -> None:
        with contextlib.ExitStack() as parts:  # if one part fails to close, the others still do
            for part in (self.wake, self._write_lock, self._engine, self._long, self._quick, self._writer):
                if part is not None:
                    parts.callback(part.close)


class ReadingThread:
    """A reading connection, with its own thread from the first read on if `threaded`.

    Not an executor's thread: executors refuse work while the interpreter shuts down, and programs may still read
    then."""

    def __init__(self, reader: Reader, *, threaded: bool) -> None:
        self._reader = reader
        self._is_threaded = threaded
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False

    async def read(self, request: Request) -> Any:
        return await self._run(lambda: self._reader.run(request))

    async def has_changed(self) -> bool:
        return bool(await self._run(self._reader.has_changed))

    async def _run(self, do: Callable[[], Any]) -> Any:
        if not self._is_threaded:
            return do()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._closing:
            if self._closed:
                raise StoreUnavailable("the store was closed: open it again")
            if self._thread is None:
                self._thread = start_thread(self._serve, "daybreak-reader")
            if self._thread is not None:
                self._asked.put((do, future))
        return do() if self._thread is None else await future

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            do, future = asked
            if not future.cancelled():
                deliver([(future, _answer(do))])
            del asked, do, future  # else the last answer would stay in memory until the next request

    def close(self) -> None:
        """Answer all requests, then end the thread."""
        with self._closing:
            self._closed = True
            self._asked.put(None)
        if self._thread is not None:
            self._thread.join()
        self._reader.close()


def _answer(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except BaseException as error:  # noqa: BLE001 - raised in the caller
        return error


def start_thread(do: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a daemon thread. None if that is not possible: since Python 3.12 an interpreter that shuts down starts
    none."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def in_thread(do: Callable[[], T]) -> T:
    """Run `do` in its own thread, without blocking the event loop."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    thread = start_thread(lambda: deliver([(future, _answer(do))]), "daybreak-open")
    if thread is None:
        return do()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do, and a closed store must leave no thread behind

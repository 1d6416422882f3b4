"""An open file: its connections and the threads that use them. Swapped in and out as one, so nobody sees half of it."""

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
    def __init__(
        self, place: Place, turn: WriteLock, engine: Engine, wake: Wake, hub: Wakeups, *, threaded: bool
    ) -> None:
        self.wake = wake
        self._pid = os.getpid()
        self._turn = turn
        self._engine = engine
        self._hub = hub
        self._writer = Writer(engine, self._changed) if threaded else None
        # Searches may be long; a look at one job must not wait behind them.
        self._quick = ReadingThread(Reader(place, engine), threaded=threaded)
        self._long = ReadingThread(Reader(place, engine), threaded=threaded)

    @property
    def is_ours(self) -> bool:
        """False in a child that was forked since: threads and locks stayed with the parent."""
        return self._pid == os.getpid()

    async def write(self, request: Request) -> Any:
        return self._write_here(request) if self._writer is None else await self._writer.ask(request)

    def write_now(self, request: Request) -> Any:
        return self._write_here(request) if self._writer is None else self._writer.ask_now(request)

    def _write_here(self, request: Request) -> Any:
        with self._engine.using:
            [answer], topics = self._engine.run([request])
            self._changed(topics)
            self._engine.tend()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def own_loop(self) -> None:
        if self._writer is not None:
            self._writer.on_loop = True

    def hands(self, now: datetime | None) -> tuple[int, int]:
        return self._engine.hands(now)

    async def read(self, request: Request, *, long: bool = False) -> Any:
        return await (self._long if long else self._quick).read(request)

    async def has_changed(self) -> bool:
        return await self._quick.has_changed()

    def _changed(self, topics: set[str]) -> None:
        if topics:
            self._hub.wake(topics)
            self.wake.send(topics)

    def close(self) -> None:
        with contextlib.ExitStack() as parts:  # what fails to close keeps no other part open
            for part in (self.wake, self._turn, self._engine, self._long, self._quick, self._writer):
                if part is not None:
                    parts.callback(part.close)


class ReadingThread:
    """A reading connection, with a thread of its own where threads are wanted, from the first read on.

    Not one of an executor: those refuse work once the interpreter begins to end, and programs may still ask then."""

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
            del asked, do, future  # or what was answered last would be kept until someone asks again

    def close(self) -> None:
        """Answer everyone who asked, then end."""
        with self._closing:
            self._closed = True
            self._asked.put(None)
        if self._thread is not None:
            self._thread.join()
        self._reader.close()


def _answer(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except BaseException as error:  # noqa: BLE001 - handed to whoever asked
        return error


def start_thread(do: Callable[[], None], name: str) -> threading.Thread | None:
    """None if it cannot be: an interpreter that ends starts no more of them, from Python 3.12 on."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def in_thread(do: Callable[[], T]) -> T:
    """Do it beside the loop, in a thread of its own."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    thread = start_thread(lambda: deliver([(future, _answer(do))]), "daybreak-open")
    if thread is None:
        return do()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do, and whoever closed a store leaves no thread behind

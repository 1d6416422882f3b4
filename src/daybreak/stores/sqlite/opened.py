"""An open file: its connections and the threads that use them. Swapped in and out as one, so nobody sees half of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from daybreak.errors import StoreUnavailable
from daybreak.stores.hub import Hub
from daybreak.stores.sqlite.engine import Engine, Place, Request
from daybreak.stores.sqlite.reader import Reader
from daybreak.stores.sqlite.turn import Turn
from daybreak.stores.sqlite.wake import Wake
from daybreak.stores.sqlite.writer import Writer


class Opened:
    def __init__(self, place: Place, turn: Turn, engine: Engine, wake: Wake, hub: Hub, *, threaded: bool) -> None:
        self.pid = os.getpid()
        self.wake = wake
        self._turn = turn
        self._engine = engine
        self._hub = hub
        self._writer = Writer(engine, self._changed) if threaded else None
        # Searches may be long; a look at one job must not wait behind them.
        self._quick = ReadingThread(place, engine, threaded=threaded)
        self._long = ReadingThread(place, engine, threaded=threaded)

    async def write(self, request: Request) -> Any:
        if self._writer is not None:
            return await self._writer.ask(request)
        [answer], topics = self._engine.run([request])
        self._changed(topics)
        self._engine.checkpoint_if_due()
        if isinstance(answer, BaseException):
            raise answer
        return answer

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
    """A reading connection, with a thread of its own where threads are wanted."""

    def __init__(self, place: Place, engine: Engine, *, threaded: bool) -> None:
        self._reader = Reader(place, engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="daybreak-reader") if threaded else None

    async def read(self, request: Request) -> Any:
        return await self._run(self._reader.run, request)

    async def has_changed(self) -> bool:
        return bool(await self._run(self._reader.has_changed))

    async def _run(self, do: Any, *args: Any) -> Any:
        if self._thread is None:
            return do(*args)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, do, *args)
        except RuntimeError as trouble:  # what an executor says once it has been shut down
            raise StoreUnavailable("the store was closed: open it again") from trouble

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        self._reader.close()

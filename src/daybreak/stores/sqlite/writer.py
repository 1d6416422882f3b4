"""The writer thread: whoever asks while a commit is under way shares the next one."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from daybreak.stores.sqlite.engine import Engine, Request

MOST = 256

Asked = tuple[Request, "asyncio.Future[Any]"]


class Writer:
    def __init__(self, engine: Engine, wake: Callable[[set[str]], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._asked: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="daybreak-writer", daemon=True)
        self._thread.start()

    async def ask(self, request: Request) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put((request, future))
        return await future

    def close(self) -> None:
        """Answer everyone who asked, then end."""
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        open_ = True
        while open_:
            batch: list[Asked] = []
            item = self._asked.get()
            while item is not None:
                batch.append(item)
                if len(batch) == MOST or self._asked.empty():
                    break
                item = self._asked.get_nowait()
            else:
                open_ = False
            if batch:
                self._serve(batch)

    def _serve(self, batch: list[Asked]) -> None:
        try:
            answers, topics = self._engine.run([request for request, _ in batch])
        except BaseException as trouble:  # noqa: BLE001 - a bug must reach its callers, not hang them
            answers, topics = [trouble] * len(batch), set()
        _deliver_all(batch, answers)
        if topics:
            self._wake(topics)
        self._engine.checkpoint_if_due()


def _deliver_all(batch: list[Asked], answers: list[Any]) -> None:
    """One hand-over for each loop, not one for each caller."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for (_, future), answer in zip(batch, answers, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, answer))
    for loop, pairs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

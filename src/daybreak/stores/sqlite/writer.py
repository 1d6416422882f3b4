"""The writer thread: whoever asks while a commit is under way shares the next one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from daybreak.errors import StoreUnavailable
from daybreak.stores.sqlite.engine import Engine, Request

_log = logging.getLogger("daybreak.sqlite")

MOST = 2000  # items of work in one transaction, so that nobody waits long behind others

Asked = tuple[Request, "asyncio.Future[Any]"]


class Writer:
    def __init__(self, engine: Engine, wake: Callable[[set[str]], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._asked: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="daybreak-writer", daemon=True)
        self._thread.start()

    async def ask(self, request: Request) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._closing:
            if self._closed:
                raise StoreUnavailable("the store was closed: open it again")
            self._asked.put((request, future))
        return await future

    def close(self) -> None:
        """Answer everyone who asked, then end."""
        with self._closing:
            self._closed = True
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._gather():
            self._serve(batch)

    def _gather(self) -> list[Asked]:
        """Everyone who waits now, up to a bound; empty means the end, which comes after everyone who asked."""
        batch: list[Asked] = []
        weight = 0
        while not batch or (weight < MOST and not self._asked.empty()):
            if (item := self._asked.get()) is None:
                self._asked.put(None)  # seen again once this batch is served
                return batch
            if not item[1].cancelled():  # who no longer waits for a job must not be given it
                batch.append(item)
                weight += item[0].weight
        return batch

    def _serve(self, batch: list[Asked]) -> None:
        topics: set[str] = set()
        try:
            answers, topics = self._engine.run([request for request, _ in batch])
        except BaseException as trouble:  # noqa: BLE001 - a bug must reach its callers, not hang them
            answers = [trouble] * len(batch)
        _deliver_all(batch, answers)
        try:
            if topics:
                self._wake(topics)
            self._engine.checkpoint_if_due()
        except Exception:  # noqa: BLE001
            # The answers are out; whoever sleeps on is woken by the slow look, and the log waits for the next turn.
            _log.exception("after a commit")


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

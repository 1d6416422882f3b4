"""Many single calls, few transactions: what is asked while a batch is on its way goes with the next one.

A lone caller waits for nobody: there is no timer, the batch under way is what gathers the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Coalescer(Generic[A, B]):
    """Turns `send`, which takes a list and answers in its order, into a call for one item."""

    def __init__(self, send: Callable[[list[A]], Awaitable[list[B]]], most: int = 1000) -> None:
        self._send = send
        self._most = most
        self._waiting: list[tuple[A, asyncio.Future[B]]] = []
        self._flush: asyncio.Task[None] | None = None

    async def __call__(self, item: A) -> B:
        future: asyncio.Future[B] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flush is None or self._flush.done():
            # A task, not a call: whoever else asks in this round of the loop goes with the same batch.
            self._flush = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._deliver(batch)
        except asyncio.CancelledError:
            # Nobody will send what still waits: its callers must hear of it, or they would wait for ever.
            for _, future in self._waiting:
                future.cancel()
            self._waiting = []
            raise
        finally:
            self._flush = None

    async def _deliver(self, batch: list[tuple[A, asyncio.Future[B]]]) -> None:
        # One who stopped waiting may have been heard already: its item is sent all the same.
        try:
            answers = await self._send([item for item, _ in batch])
            answered = list(zip(batch, answers, strict=True))
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as trouble:  # noqa: BLE001 - handed to every caller of the batch
            for _, future in batch:
                if not future.done():
                    future.set_exception(trouble)
            return
        for (_, future), answer in answered:
            if not future.done():
                future.set_result(answer)

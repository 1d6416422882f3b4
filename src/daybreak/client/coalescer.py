"""Many single calls, few transactions: what is asked while a batch is on its way goes with the next one.

A lone caller waits for nobody: there is no timer, the batch under way is what gathers the next."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")

GRACE: Final = 0.25  # seconds that a batch under way has to say itself what became of it


class Coalescer(Generic[A, B]):
    """Turns `send`, which takes a list and answers in its order, into a call for one item.

    `send` is also told within how many seconds: when the last of its callers gives up. `late` makes the error of a
    caller who was given no answer in its time, told whether its item may have been sent. A caller's time begins anew
    with every batch that is answered: a long line that moves is no reason to give up."""

    def __init__(
        self,
        send: Callable[[list[A], float], Awaitable[list[B]]],
        most: int = 1000,
        late: Callable[[bool], Exception] = lambda _: TimeoutError(),
    ) -> None:
        self._send = send
        self._most = most
        self._late = late
        self._waiting: list[_Call[A, B]] = []
        self._sent: list[_Call[A, B]] = []
        self._flush: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        self._answered_at = -math.inf

    async def __call__(self, item: A, within: float = math.inf) -> B:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[B] = loop.create_future()
        until = loop.time() + within
        self._waiting.append(_Call(item, future, until, within))
        if self._flush is None or self._flush.done():
            # A task, not a call: whoever else asks in this round of the loop goes with the same batch.
            self._flush = loop.create_task(self._run())
        if until != math.inf and (self._watch is None or until < self._looks_at):
            self._look_at(until)
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._sent, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._deliver(self._sent)
                self._sent = []
        except asyncio.CancelledError:
            # Nobody will send what still waits: its callers must hear of it, or they would wait for ever.
            for call in self._waiting:
                call.future.cancel()
            self._waiting = []
            raise
        finally:
            self._flush = None

    async def _deliver(self, batch: list[_Call[A, B]]) -> None:
        # One who stopped waiting may have been heard already: its item is sent all the same.
        loop = asyncio.get_running_loop()
        within = max(self._until(call) for call in batch) - loop.time()
        try:
            answers = await self._send([call.item for call in batch], within)
            answered = list(zip(batch, answers, strict=True))
        except asyncio.CancelledError:
            for call in batch:
                call.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - handed to every caller of the batch
            for call in batch:
                if not call.future.done():
                    call.future.set_exception(error)
            return
        self._answered_at = loop.time()
        for call, answer in answered:
            if not call.future.done():
                call.future.set_result(answer)

    # -- giving up -----------------------------------------------------------------------------------------------------

    def _look_at(self, when: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch, self._looks_at = asyncio.get_running_loop().call_at(when, self._look), when

    def _until(self, call: _Call[A, B]) -> float:
        return max(call.until, self._answered_at + call.within)

    def _look(self) -> None:
        """One timer for all callers. Who was late in line is not sent any more."""
        self._watch = None
        now = asyncio.get_running_loop().time()
        late = [call for call in self._waiting if self._until(call) <= now]
        if late:
            self._waiting = [call for call in self._waiting if self._until(call) > now]
        for call in late:
            self._give_up(call, may_be_sent=False)
        for call in self._sent:
            if self._until(call) + GRACE <= now:
                self._give_up(call, may_be_sent=True)
        left = [self._until(call) for call in self._waiting]
        left += [self._until(call) + GRACE for call in self._sent if not call.future.done()]
        if (first := min(left, default=math.inf)) != math.inf:
            self._look_at(first)

    def _give_up(self, call: _Call[A, B], *, may_be_sent: bool) -> None:
        if not call.future.done():
            call.future.set_exception(self._late(may_be_sent))


class _Call(Generic[A, B]):
    __slots__ = ("future", "item", "until", "within")

    def __init__(self, item: A, future: asyncio.Future[B], until: float, within: float) -> None:
        self.item = item
        self.future = future
        self.until = until
        self.within = within

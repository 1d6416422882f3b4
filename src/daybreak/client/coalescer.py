"""Groups single calls into batches: calls that arrive while a batch is under way are sent with the next one.

A single caller does not wait for others: there is no timer, and a batch collects calls only while another is sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")

GRACE: Final = 0.25  # seconds after the deadline in which a batch under way may still return its own outcome


class Coalescer(Generic[A, B]):
    """Turns `send`, which takes a list and returns a list in the same order, into a call for one item.

    `send` also gets a timeout in seconds, that of its most patient caller. `make_error` makes the error of a caller
    whose timeout ran out; its argument is whether the item may have been sent. A caller's timeout restarts whenever a
    batch is answered, so a long queue that moves is not an error."""

    def __init__(
        self,
        send: Callable[[list[A], float], Awaitable[list[B]]],
        max_batch: int = 1000,
        make_error: Callable[[bool], Exception] = lambda _: TimeoutError(),
    ) -> None:
        self._send = send
        self._max_batch = max_batch
        self._make_error = make_error
        self._waiting: list[_Call[A, B]] = []
        self._sent: list[_Call[A, B]] = []
        self._flush: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_check_at = 0.0
        self._answered_at = -math.inf

    async def __call__(self, item: A, timeout: float = math.inf) -> B:  # noqa: ASYNC109 - one timer for all calls
        loop = asyncio.get_running_loop()
        future: asyncio.Future[B] = loop.create_future()
        deadline = loop.time() + timeout
        self._waiting.append(_Call(item, future, deadline, timeout))
        if self._flush is None or self._flush.done():
            # A task instead of a call, so that other calls in this iteration of the loop join the same batch.
            self._flush = loop.create_task(self._run())
        if deadline != math.inf and (self._timer is None or deadline < self._next_check_at):
            self._schedule_check(deadline)
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._sent, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
                await self._deliver(self._sent)
                self._sent = []
        except asyncio.CancelledError:
            # The waiting calls will never be sent. Cancel them, or their callers would wait forever.
            for call in self._waiting:
                call.future.cancel()
            self._waiting = []
            raise
        finally:
            self._flush = None

    async def _deliver(self, batch: list[_Call[A, B]]) -> None:
        # Items of callers that stopped waiting are sent too.
        loop = asyncio.get_running_loop()
        timeout = max(self._deadline(call) for call in batch) - loop.time()
        try:
            answers = await self._send([call.item for call in batch], timeout)
            answered = list(zip(batch, answers, strict=True))
        except asyncio.CancelledError:
            for call in batch:
                call.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in every caller of the batch
            for call in batch:
                if not call.future.done():
                    call.future.set_exception(error)
            return
        self._answered_at = loop.time()
        for call, answer in answered:
            if not call.future.done():
                call.future.set_result(answer)

    # -- timeouts ------------------------------------------------------------------------------------------------------

    def _schedule_check(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next_check_at = asyncio.get_running_loop().call_at(when, self._check_deadlines), when

    def _deadline(self, call: _Call[A, B]) -> float:
        return max(call.deadline, self._answered_at + call.timeout)

    def _check_deadlines(self) -> None:
        """One timer for all callers. An item whose deadline passes before it is sent is not sent."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        late = [call for call in self._waiting if self._deadline(call) <= now]
        if late:
            self._waiting = [call for call in self._waiting if self._deadline(call) > now]
        for call in late:
            self._give_up(call, may_be_sent=False)
        for call in self._sent:
            if self._deadline(call) + GRACE <= now:
                self._give_up(call, may_be_sent=True)
        left = [self._deadline(call) for call in self._waiting]
        left += [self._deadline(call) + GRACE for call in self._sent if not call.future.done()]
        if (first := min(left, default=math.inf)) != math.inf:
            self._schedule_check(first)

    def _give_up(self, call: _Call[A, B], *, may_be_sent: bool) -> None:
        if not call.future.done():
            call.future.set_exception(self._make_error(may_be_sent))


class _Call(Generic[A, B]):
    __slots__ = ("deadline", "future", "item", "timeout")

    def __init__(self, item: A, future: asyncio.Future[B], deadline: float, timeout: float) -> None:
        self.item = item
        self.future = future
        self.deadline = deadline
        self.timeout = timeout

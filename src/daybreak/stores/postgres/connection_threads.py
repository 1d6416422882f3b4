"""A few threads, each with its own connection. The next idle thread takes the next piece of work.

Work is handed over once, as a whole batch, and so is its answer: a hop between threads costs about 50 microseconds. If
the caller is cancelled, work that has begun is finished and its answer is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.connection import Connection, closed_error
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.system import patience

MAX_ATTEMPTS = 8  # for work that conflicts with other transactions
Work = Callable[[Connection], Any]


def run_with_retries(work: Work, connection: Connection) -> Any:
    """Run the work; repeat it if it conflicted with another transaction, in which case nothing was written."""
    for number in range(MAX_ATTEMPTS):
        try:
            return work(connection)
        except Exception as error:
            if not faults.is_retryable(error):
                raise
            if number == MAX_ATTEMPTS - 1 or patience.is_over():
                raise faults.call_error(connection.name, error, sent=False, lost=False) from None
            time.sleep(0.001 * number * number)
    raise AssertionError


Request = tuple[Work, asyncio.Future[Any], patience.Limits]


def _deadline(request: Request) -> float:
    until = request[2][0]
    return math.inf if until is None else until


class ConnectionThread:
    """One thread and its connection."""

    def __init__(self, pool: ConnectionThreads, number: int, first: Request) -> None:
        self.connection = pool.take_connection()
        self._pool = pool
        self.inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.inbox.put(first)
        self.thread = threading.Thread(target=self._run, name=f"daybreak-pg-{number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        pool = self._pool
        patience.unbound()
        while (request := self.inbox.get()) is not None:
            work, future, limits = request
            if future.cancelled():
                pool.on_idle(self)
            else:
                with patience.applied(limits):
                    answer = _answer(work, self.connection)
                pool.on_idle(self)  # before the answer is delivered: its receiver may submit again at once
                deliver(future, answer)
                del answer
                pool.after_work(self.connection)
            del request, work, future  # else the last answer would be kept alive until the next request
        self.connection.close()


class ConnectionThreads:
    """Starts up to `max_threads` threads as they are needed, and queues work while all are busy."""

    def __init__(
        self,
        address: Address,
        take_connection: Callable[[], Connection],
        watchdog: Watchdog,
        after_work: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        self.address = address
        self.take_connection = take_connection
        self.after_work = after_work  # called after each answer was delivered
        self.max_threads = address.connections
        self._lock = threading.Lock()
        self._queue: deque[Request] = deque()
        self._threads: list[ConnectionThread] = []
        # The thread that worked last is used first: its caches are warm, here and at the server.
        self._idle: list[ConnectionThread] = []
        self._is_closed = False
        self.nudge: Callable[[float], None]
        watchdog.watch(self)

    async def run(self, work: Work) -> Any:
        return await self.submit(work)

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Hand work to the next idle thread; the caller need not await the future."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        limits = patience.current_limits()
        request = (work, future, limits)
        with self._lock:
            if self._is_closed:
                raise closed_error(self.address)
            if self._idle:
                self._idle.pop().inbox.put(request)
            elif len(self._threads) < self.max_threads:
                self._threads.append(ConnectionThread(self, len(self._threads) + 1, request))
            else:
                self._queue.append(request)
                if limits[0] is not None:
                    self.nudge(limits[0])
        return future

    def check(self, now: float) -> float:
        """Fail requests whose caller's patience ended while all threads were busy: nothing of them was sent."""
        with self._lock:
            overdue = [request for request in self._queue if _deadline(request) <= now]
            for request in overdue:
                self._queue.remove(request)
            first_deadline = min(map(_deadline, self._queue), default=math.inf)
        for _, future, _ in overdue:
            deliver(future, faults.unsent_error(self.address.name))
        return first_deadline

    def on_idle(self, thread: ConnectionThread) -> None:
        with self._lock:
            if self._queue:
                thread.inbox.put(self._queue.popleft())
            elif self._is_closed:
                thread.inbox.put(None)
            else:
                self._idle.append(thread)

    def close(self) -> None:
        """Answer every queued request, then end the threads."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, []
            idle, self._idle = self._idle, []
            for thread in idle:
                thread.inbox.put(None)
        for thread in threads:
            thread.connection.abandon()
        for thread in threads:
            thread.thread.join()


def _answer(work: Work, connection: Connection) -> Any:
    try:
        return run_with_retries(work, connection)
    except BaseException as error:  # noqa: BLE001 - handed to the caller
        return error


def deliver(future: asyncio.Future[Any], answer: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits for the answer
        future.get_loop().call_soon_threadsafe(_set, future, answer)


def _set(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)

"""A few threads, each with a connection of its own: whoever asks is served by the next that is free.

Work is handed over once, with its batch, and an answer once: a hop costs some 50 microseconds. A caller who gives up
tears nothing: what has begun is finished, its answer dropped."""

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
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.link import Link, refused
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.system import patience

TRIES = 8  # when others were in the way
Work = Callable[[Link], Any]


def attempt(work: Work, link: Link) -> Any:
    """Do it, again where nothing was written because others were in the way."""
    for tried in range(TRIES):
        try:
            return work(link)
        except Exception as error:
            if not faults.is_passing(error):
                raise
            if tried == TRIES - 1 or patience.is_over():
                raise faults.working(link.name, error, sent=False, lost=False) from None
            time.sleep(0.001 * tried * tried)
    raise AssertionError


Asked = tuple[Work, asyncio.Future[Any], patience.Handed]


def _until(asked: Asked) -> float:
    until = asked[2][0]
    return math.inf if until is None else until


class ConnectionThread:
    """One thread and its connection."""

    def __init__(self, crew: ConnectionThreads, number: int, first: Asked) -> None:
        self.link = Link(crew.place, crew.clock)
        crew.watchdog.watch(self.link.waiting)
        self._crew = crew
        self.given: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self.given.put(first)
        self.thread = threading.Thread(target=self._run, name=f"daybreak-pg-{number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        crew = self._crew
        patience.unbound()
        while (asked := self.given.get()) is not None:
            work, future, limits = asked
            if future.cancelled():
                crew.is_free(self)
            else:
                with patience.taken(limits):
                    answer = _answer(work, self.link)
                crew.is_free(self)  # before the answer is out: who has it will ask again at once
                deliver(future, answer)
                del answer
                crew.after(self.link)
            del asked, work, future  # or what was answered last would be kept until someone asks again
        self.link.close()


class ConnectionThreads:
    def __init__(
        self, place: Address, clock: ServerClock, watchdog: Watchdog, after: Callable[[Link], None] = lambda _: None
    ) -> None:
        self.place = place
        self.clock = clock
        self.watchdog = watchdog
        self.after = after  # done when an answer is out
        self.most = place.connections
        self._lock = threading.Lock()
        self._waiting: deque[Asked] = deque()
        self._hands: list[ConnectionThread] = []
        self._free: list[
            ConnectionThread
        ] = []  # who was at work last is first: all that he needs is warm, here and at the server
        self._is_closed = False
        self.nudge: Callable[[float], None]
        watchdog.watch(self)

    async def do(self, work: Work) -> Any:
        return await self.give(work)

    def give(self, work: Work) -> asyncio.Future[Any]:
        """To whoever is free next; who gives it need not wait for it."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        limits = patience.handed_over()
        asked = (work, future, limits)
        with self._lock:
            if self._is_closed:
                raise refused(self.place)
            if self._free:
                self._free.pop().given.put(asked)
            elif len(self._hands) < self.most:
                self._hands.append(ConnectionThread(self, len(self._hands) + 1, asked))
            else:
                self._waiting.append(asked)
                if limits[0] is not None:
                    self.nudge(limits[0])
        return future

    def check(self, now: float) -> float:
        """Answer those whose patience ended while all hands were busy: nothing of theirs was sent."""
        with self._lock:
            late = [asked for asked in self._waiting if _until(asked) <= now]
            for asked in late:
                self._waiting.remove(asked)
            first = min(map(_until, self._waiting), default=math.inf)
        for _, future, _ in late:
            deliver(future, faults.unsent(self.place.name))
        return first

    def is_free(self, hand: ConnectionThread) -> None:
        with self._lock:
            if self._waiting:
                hand.given.put(self._waiting.popleft())
            elif self._is_closed:
                hand.given.put(None)
            else:
                self._free.append(hand)

    def close(self) -> None:
        """Answer everyone who asked, then end."""
        with self._lock:
            self._is_closed = True
            hands, self._hands = self._hands, []
            free, self._free = self._free, []
            for hand in free:
                hand.given.put(None)
        for hand in hands:
            hand.link.leave()
        for hand in hands:
            hand.thread.join()


def _answer(work: Work, link: Link) -> Any:
    try:
        return attempt(work, link)
    except BaseException as error:  # noqa: BLE001 - handed to whoever asked
        return error


def deliver(future: asyncio.Future[Any], answer: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(_set, future, answer)


def _set(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)

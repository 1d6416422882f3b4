"""Exchanges asked on the loop itself: no thread stands between a worker and the server.

Only what is one call (fast.py) is asked here; all else, and whatever finds no connection free, goes to the crew. An
answer is read when it has come, so nothing ever waits here but the caller."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from daybreak.core.errors import StoreError
from daybreak.stores.backoff import Backoff
from daybreak.stores.postgres import faults
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.link import STALE, connect, meet, refused
from daybreak.stores.postgres.prepared_calls import Call, Calls, Packed
from daybreak.stores.postgres.watchdog import Waiting, Watchdog
from daybreak.system import patience

CONNECTIONS: Final = 2  # an exchange, and a hurried one beside it


class Question(NamedTuple):
    """`then` hears the answer also when its caller has given up, and after him: he may be about to start a job."""

    caller: asyncio.Future[list[Any]]
    then: Callable[[list[Any]], None]


class LoopLink:
    """One connection, read by its loop. It has one question at a time, of a call that was prepared."""

    def __init__(self, db: psycopg.Connection[Any], calls: Calls, place: Address, waiting: Waiting) -> None:
        self._db = db
        self._calls = calls
        self._pg = db.pgconn
        self._pg.nonblocking = 1
        self._place = place
        self._within = place.answer_within.total_seconds()
        self.waiting = waiting
        self._loop = asyncio.get_running_loop()
        self._asked: Question | None = None
        self._rested = asyncio.Event()
        self._found: list[Any] = []
        self.is_lost = False
        self._fd = self._pg.socket
        self._loop.add_reader(self._fd, self._readable)

    @property
    def is_free(self) -> bool:
        return self._asked is None and not self.is_lost

    def ask(self, call: Call, params: Packed, then: Callable[[list[Any]], None]) -> asyncio.Future[list[Any]]:
        """Who gives up leaves the question to be answered: nothing is torn."""
        self._asked = Question(self._loop.create_future(), then)
        caller = self._asked.caller
        self.waiting.begin(self._db, patience.left(self._within))
        try:
            self._calls.send(call, params)
            self._flush()
        except psycopg.Error as error:
            self._end(error)
        except BaseException:
            self.close()
            raise
        return caller

    def _flush(self) -> None:
        if self._pg.flush():
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            if not self._pg.flush():
                self._loop.remove_writer(self._fd)
        except psycopg.Error as error:
            self._end(error)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            while self._pg.notifies() is not None:
                pass
            while self._asked is not None and not self._pg.is_busy():
                if (result := self._pg.get_result()) is None:
                    self._answer()
                else:
                    self._found.append(result)
        except psycopg.Error as error:
            self._end(error)

    def _answer(self) -> None:
        found, self._found = self._found, []
        assert self._asked is not None
        caller, then = self._asked
        try:
            rows = self._calls.rows(found)
        except psycopg.Error as error:
            if self._pg.status != psycopg.pq.ConnStatus.OK:
                self._end(error)
                return
            if not caller.done():
                caller.set_exception(error if faults.is_passing(error) else self._told(error, lost=False))
            if error.sqlstate in STALE:
                self._end(error)
                return
        except Exception as error:  # noqa: BLE001 - a mistake of ours must reach its caller, not hang it
            if not caller.done():
                caller.set_exception(error)
        else:
            if not caller.done():
                caller.set_result(rows)
            self._loop.call_soon(then, rows)
        self._asked = None
        self.waiting.end()
        self._rested.set()

    def _told(self, error: psycopg.Error, *, lost: bool) -> Exception:
        late = self.waiting.given_up_after if lost else None
        return faults.working(self._place.name, error, sent=True, lost=lost, late=late)

    async def rest(self) -> None:
        """Until what was asked is answered."""
        if self._asked is not None:
            self._rested.clear()
            await self._rested.wait()

    def close(self) -> None:
        self._end(psycopg.OperationalError("the store was closed"))

    def _end(self, error: psycopg.Error) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.waiting.end()
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)
            with contextlib.suppress(psycopg.Error):
                self._db.close()
            asked, self._asked = self._asked, None
            if asked is not None and not asked.caller.done():
                asked.caller.set_exception(self._told(error, lost=True))
            self._rested.set()


class OnLoop:
    """The connections of one loop, made beside it when they are first missed."""

    def __init__(
        self,
        place: Address,
        call: Call,
        watchdog: Watchdog,
        beside: Callable[[Callable[[], Any]], Any],
        given_up: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.most = min(CONNECTIONS, place.connections - 1)
        self._place = place
        self.call = call
        self._beside = beside
        self._given_up = given_up
        self._waiting = [Waiting() for _ in range(self.most)]
        self._meeting = Waiting()
        for one in (*self._waiting, self._meeting):
            watchdog.watch(one)
        self._links: list[LoopLink] = []
        self._making: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._not_before = 0.0
        self._is_closed = False

    def free(self) -> LoopLink | None:
        for link in self._links:
            if link.is_free:
                return link
        if any(link.is_lost for link in self._links):
            self._links = [link for link in self._links if not link.is_lost]
            self._backoff.lost()
            self._not_before = time.monotonic() + (self._backoff.pause() or 0.0)
        is_due = len(self._links) < self.most and time.monotonic() >= self._not_before
        if is_due and self._making is None and not self._is_closed:
            self._making = self.loop.create_task(self._make())
        return None

    async def _make(self) -> None:
        """Trouble with the server is told to those who ask the crew; here one tries again later."""
        patience.unbound()  # a task of its own, whoever missed it
        began = time.monotonic()
        self._not_before = math.inf
        try:
            made = await self._beside(self._connect)
        except (psycopg.Error, StoreError):
            self._backoff.failed(time.monotonic() - began)
            self._not_before = time.monotonic() + (self._backoff.pause() or 0.0)
            return
        finally:
            self._making = None
        if made is None:
            self._not_before = float("inf")
            self._given_up()
        elif self._is_closed:
            made[0].close()
        else:
            taken = [link.waiting for link in self._links if not link.is_lost]
            waiting = next(one for one in self._waiting if one not in taken)
            db, calls = made
            self._links.append(LoopLink(db, calls, self._place, waiting))
            self._backoff.connected()
            self._not_before = 0.0

    def _connect(self) -> tuple[psycopg.Connection[Any], Calls] | None:
        """None where a pooler stands between, which may give every transaction another process."""
        if self._is_closed:
            raise refused(self._place)
        patience.unbound()
        db = connect(self._place)
        try:
            with self._meeting.on(db, self._place.answer_within.total_seconds()):
                if not meet(db).is_direct:
                    db.close()
                    return None
                calls = Calls(db)
                calls.prepare(self.call)
        except psycopg.Error:
            db.close()
            raise
        return db, calls

    async def close(self) -> None:
        """Answer everyone who asked, then hang up."""
        self._is_closed = True
        if self.loop is asyncio.get_running_loop():
            if self._making is not None:
                await asyncio.wait([self._making])
            for link in self._links:
                await link.rest()
                link.close()
        elif self.loop.is_closed():
            self._hang_up()
        else:
            self.loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        for link in self._links:
            link.close()

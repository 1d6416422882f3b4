"""Exchanges sent from the worker's event loop itself, without a thread in between.

Only plain exchanges (plain_path.py) are sent here. Everything else, and an exchange that finds no free connection, goes
to the connection threads. Nothing blocks: an answer is read when the socket is readable."""

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
from daybreak.stores.postgres.connection import READ_ONLY_ERRORS, closed_error
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.prepared_calls import Call, Calls, Packed
from daybreak.stores.postgres.session import connect, identify_server
from daybreak.stores.postgres.watchdog import AnswerTimer, Watchdog
from daybreak.system import patience

MAX_CONNECTIONS: Final = 2  # one exchange, and an urgent one beside it


class PendingCall(NamedTuple):
    """`on_reply` runs even if the caller was cancelled, and always after the caller has resumed, so a job start is not
    delayed."""

    caller: asyncio.Future[list[Any]]
    on_reply: Callable[[list[Any]], None]


class LoopConnection:
    """One connection, read by its event loop. It has one prepared call at a time in flight."""

    def __init__(self, db: psycopg.Connection[Any], calls: Calls, address: Address, answer_timer: AnswerTimer) -> None:
        self._db = db
        self._calls = calls
        self._pg = db.pgconn
        self._pg.nonblocking = 1
        self._address = address
        self._within = address.answer_within.total_seconds()
        self.answer_timer = answer_timer
        self._loop = asyncio.get_running_loop()
        self._pending: PendingCall | None = None
        self._idle = asyncio.Event()
        self._results: list[Any] = []
        self.is_lost = False
        self._fd = self._pg.socket
        self._loop.add_reader(self._fd, self._readable)

    @property
    def is_free(self) -> bool:
        return self._pending is None and not self.is_lost

    def call(self, call: Call, params: Packed, on_reply: Callable[[list[Any]], None]) -> asyncio.Future[list[Any]]:
        """Send a call. If the caller is cancelled, the call is completed all the same."""
        self._pending = PendingCall(self._loop.create_future(), on_reply)
        caller = self._pending.caller
        self.answer_timer.start(self._db, patience.left(self._within))
        try:
            self._calls.send(call, params)
            self._flush()
        except psycopg.Error as error:
            self._fail(error)
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
            self._fail(error)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            while self._pg.notifies() is not None:
                pass
            while self._pending is not None and not self._pg.is_busy():
                if (result := self._pg.get_result()) is None:
                    self._finish_call()
                else:
                    self._results.append(result)
        except psycopg.Error as error:
            self._fail(error)

    def _finish_call(self) -> None:
        results, self._results = self._results, []
        assert self._pending is not None
        caller, on_reply = self._pending
        try:
            rows = self._calls.rows(results)
        except psycopg.Error as error:
            if self._pg.status != psycopg.pq.ConnStatus.OK:
                self._fail(error)
                return
            if not caller.done():
                caller.set_exception(error if faults.is_retryable(error) else self._translate(error, lost=False))
            if error.sqlstate in READ_ONLY_ERRORS:
                self._fail(error)
                return
        except Exception as error:  # noqa: BLE001 - a bug in here must reach the caller, not hang it
            if not caller.done():
                caller.set_exception(error)
        else:
            if not caller.done():
                caller.set_result(rows)
            self._loop.call_soon(on_reply, rows)
        self._pending = None
        self.answer_timer.stop()
        self._idle.set()

    def _translate(self, error: psycopg.Error, *, lost: bool) -> Exception:
        late = self.answer_timer.expired_after if lost else None
        return faults.call_error(self._address.name, error, sent=True, lost=lost, late=late)

    async def wait_until_idle(self) -> None:
        """Wait until the pending call is answered."""
        if self._pending is not None:
            self._idle.clear()
            await self._idle.wait()

    def close(self) -> None:
        self._fail(psycopg.OperationalError("the store was closed"))

    def _fail(self, error: psycopg.Error) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.answer_timer.stop()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)
            with contextlib.suppress(psycopg.Error):
                self._db.close()
            pending, self._pending = self._pending, None
            if pending is not None and not pending.caller.done():
                pending.caller.set_exception(self._translate(error, lost=True))
            self._idle.set()


class LoopConnections:
    """The connections of one event loop, opened in a thread when they are first needed."""

    def __init__(
        self,
        address: Address,
        call: Call,
        watchdog: Watchdog,
        run_in_thread: Callable[[Callable[[], Any]], Any],
        on_pooler: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.max_connections = min(MAX_CONNECTIONS, address.connections - 1)
        self._address = address
        self.prepared_call = call
        self._run_in_thread = run_in_thread
        self._on_pooler = on_pooler
        self._answer_timers = [AnswerTimer() for _ in range(self.max_connections)]
        self._connect_timer = AnswerTimer()
        for timer in (*self._answer_timers, self._connect_timer):
            watchdog.watch(timer)
        self._connections: list[LoopConnection] = []
        self._adding: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._retry_at = 0.0
        self._is_closed = False

    def get_free(self) -> LoopConnection | None:
        for connection in self._connections:
            if connection.is_free:
                return connection
        if any(connection.is_lost for connection in self._connections):
            self._connections = [connection for connection in self._connections if not connection.is_lost]
            self._backoff.lost()
            self._retry_at = time.monotonic() + (self._backoff.pause() or 0.0)
        is_due = len(self._connections) < self.max_connections and time.monotonic() >= self._retry_at
        if is_due and self._adding is None and not self._is_closed:
            self._adding = self.loop.create_task(self._add_connection())
        return None

    async def _add_connection(self) -> None:
        """Open one more connection. An error is not reported here, only retried later: meanwhile calls go to the
        connection threads, which report it."""
        patience.unbound()  # this task serves all callers, so no caller's patience applies
        began = time.monotonic()
        self._retry_at = math.inf
        try:
            opened = await self._run_in_thread(self._connect)
        except (psycopg.Error, StoreError):
            self._backoff.failed(time.monotonic() - began)
            self._retry_at = time.monotonic() + (self._backoff.pause() or 0.0)
            return
        finally:
            self._adding = None
        if opened is None:
            self._retry_at = float("inf")
            self._on_pooler()
        elif self._is_closed:
            opened[0].close()
        else:
            used = [connection.answer_timer for connection in self._connections if not connection.is_lost]
            answer_timer = next(timer for timer in self._answer_timers if timer not in used)
            db, calls = opened
            self._connections.append(LoopConnection(db, calls, self._address, answer_timer))
            self._backoff.connected()
            self._retry_at = 0.0

    def _connect(self) -> tuple[psycopg.Connection[Any], Calls] | None:
        """None behind a pooler, where every transaction may run in another process and prepared calls do not work."""
        if self._is_closed:
            raise closed_error(self._address)
        patience.unbound()
        db = connect(self._address)
        try:
            with self._connect_timer.running(db, self._address.answer_within.total_seconds()):
                if not identify_server(db)[0].is_direct:
                    db.close()
                    return None
                calls = Calls(db)
                calls.prepare(self.prepared_call)
        except psycopg.Error:
            db.close()
            raise
        return db, calls

    async def close(self) -> None:
        """Answer the pending calls, then disconnect."""
        self._is_closed = True
        if self.loop is asyncio.get_running_loop():
            if self._adding is not None:
                await asyncio.wait([self._adding])
            for connection in self._connections:
                await connection.wait_until_idle()
                connection.close()
        elif self.loop.is_closed():
            self._close_all()
        else:
            self.loop.call_soon_threadsafe(self._close_all)

    def _close_all(self) -> None:
        for connection in self._connections:
            connection.close()

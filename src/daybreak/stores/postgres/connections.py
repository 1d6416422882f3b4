"""What an open store owns: its connections and threads, the listener for wake-ups, and the caches they share."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from daybreak.core.errors import StoreError, StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import EVENTS_TOPIC, Exchange, Exchanged, Inserted
from daybreak.stores.postgres import faults, plain_path, schema
from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.blocking_insert import BlockingInsert
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.connection_threads import ConnectionThreads, deliver
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.engine import Engine
from daybreak.stores.postgres.lanes import Lanes
from daybreak.stores.postgres.loop_connection import LoopConnections
from daybreak.stores.postgres.plain_exchange import PlainExchange
from daybreak.stores.postgres.prepared_calls import prepare_call
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.vacuum import Vacuum
from daybreak.stores.postgres.wake import ListenedHub, Wake
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.stores.wakeups import HubWatch
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

T = TypeVar("T")
FOLD_AFTER = 300  # writes of this process until it folds the tallies; other processes fold, too


class OpenStore:
    """Everything that exists between `open` and `close`. Safe to use from any thread unless a method says otherwise."""

    def __init__(self, address: Address, world: World, hub: ListenedHub, *, uses_plain_path: bool = True) -> None:
        self.address = address
        self.clock = ServerClock(world)
        self._pid = os.getpid()
        self._hub = hub
        self._sql = Statements("sql", address.schema)
        self._lanes = Lanes()
        self._resource_hints = plain_path.ResourceHints()
        self._uses_plain_path = uses_plain_path
        self._insert_one = prepare_call("insert_one", self._sql.call_insert_one)
        self._writes = 0
        self._watchdog = Watchdog()
        try:
            # The connection that opened the store: the first caller that needs one gets it.
            self._unused_connections = [self._prepare()]
        except BaseException:
            self._watchdog.close()
            raise
        self.clock.is_shared = True
        self._vacuum = Vacuum(address, self.clock, self._sql, self._watchdog)
        self._threads = ConnectionThreads(address, self._take_connection, self._watchdog, self._fold_if_due)
        self.wake = Wake(address, hub, self._watchdog)
        self._blocking_insert = BlockingInsert(address, self._take_connection, self._engine)
        self._on_loop: LoopConnections | None = None

    def _take_connection(self) -> Connection:
        try:
            return self._unused_connections.pop()
        except IndexError:
            connection = Connection(self.address, self.clock)
            self._watchdog.watch(connection.answer_timer)
            return connection

    def _prepare(self) -> Connection:
        """Check the schema and migrate it to this version. All of it is one transaction, so if the connection breaks it
        is simply repeated, until the caller's patience ends."""
        pause = 0.05
        with patience.within(patience.left(patience.PATIENCE.total_seconds())):
            while True:
                connection = Connection(self.address, self.clock)
                self._watchdog.watch(connection.answer_timer)
                try:
                    opened = schema.prepare(connection, self.address)
                except BaseException as error:
                    connection.close()
                    self._watchdog.forget(connection.answer_timer)
                    if not isinstance(error, (StoreUnavailable, psycopg.Error)):
                        raise
                    is_retried = connection.has_been_connected or isinstance(error, faults.ConnectionCut)
                    if not is_retried or patience.left() <= pause:
                        raise faults.call_error(self.address.name, error, sent=False, lost=False) from None
                    time.sleep(pause * (0.5 + RealWorld.chance.random()))
                    pause = min(2 * pause, 1.0)
                else:
                    for number, queue, task, version in opened.lanes:
                        self._lanes.add(number, (queue, task, version))
                    return connection

    @property
    def is_ours(self) -> bool:
        """False in a forked child: the threads do not exist there, and the sockets belong to the parent."""
        return self._pid == os.getpid()

    def _engine(self, connection: Connection) -> Engine:
        return Engine(
            connection,
            self._sql,
            self._lanes,
            self.clock,
            self,
            self._resource_hints,
            self._insert_one,
            uses_plain_path=self._uses_plain_path,
        )

    async def do(self, work: Callable[[Engine], T]) -> T:
        answer: T = await self._threads.run(lambda connection: work(self._engine(connection)))
        return answer

    def own_loop(self) -> None:
        """From now on send plain exchanges from this event loop. Its connections are taken from the threads' share."""
        loop = asyncio.get_running_loop()
        # Other loops cannot watch a socket, or (uvloop) stop silently when it breaks.
        can_watch_sockets = isinstance(loop, asyncio.SelectorEventLoop)
        if self._on_loop is None and can_watch_sockets and self.address.connections > 1:
            call = prepare_call("exchange", self._sql.call_exchange)
            self._on_loop = LoopConnections(self.address, call, self._watchdog, in_thread, self._use_threads_only)
            self._threads.max_threads = self.address.connections - self._on_loop.max_connections

    def _use_threads_only(self) -> None:
        """A pooler prevents connections on the loop: the threads get their share back."""
        self._threads.max_threads = self.address.connections

    async def leave_loop(self) -> None:
        if self._on_loop is not None:
            await self._on_loop.close()

    async def exchange(self, request: Exchange, now: int | None) -> Exchanged:
        on_loop, connection = self._on_loop, None
        is_here = on_loop is not None and on_loop.loop is asyncio.get_running_loop() and now is None
        is_plain = self._uses_plain_path and plain_path.is_plain(request)
        is_plain = is_plain and not self._resource_hints.use_resources(request)
        if on_loop is not None and is_here and is_plain and not self.clock.must_be_read():
            connection = on_loop.get_free()
        if on_loop is None or connection is None:
            return await self.do(lambda engine: engine.exchange(request, now))
        exchange = PlainExchange(request, now, self.clock, self._lanes, self._resource_hints, self)
        params = plain_path.pack_params(exchange.params())
        try:
            # Notified from the reply, not from this coroutine: a cancelled exchange has changed the store all the same.
            rows = await connection.call(on_loop.prepared_call, params, functools.partial(self._publish, exchange))
        except psycopg.Error:  # a conflict with another transaction: nothing was written
            return await self.do(lambda engine: engine.exchange(request, now, is_plain=False))
        if not exchange.receive(rows):
            return await self.do(lambda engine: engine.exchange(request, now, is_plain=exchange.locks_resources))
        if not exchange.knows_lanes:
            await self.do(lambda engine: engine.load_lanes())
        return exchange.answer()

    def _publish(self, exchange: PlainExchange, rows: list[Any]) -> None:
        if exchange.publish(rows) and self._writes >= FOLD_AFTER:
            with contextlib.suppress(StoreError):  # the store was closed meanwhile
                self._threads.submit(lambda _: None)  # a thread folds after each piece of work

    def _fold_if_due(self, connection: Connection) -> None:
        if self._writes >= FOLD_AFTER:
            self._writes = 0
            with contextlib.suppress(Exception):  # the next write tries again
                connection.query(self._sql.fold)

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return self._blocking_insert.insert(specs)

    def notice_in_commit(self) -> tuple[str, str] | None:
        return self.wake.notice_in_commit()

    def on_commit(self, topics: set[str], notified: Iterable[str] = (), *, deleted_rows: int = 0) -> None:
        self._writes += 1
        if deleted_rows:
            self._vacuum.note(deleted_rows)
        if topics:
            self._hub.wake(topics)
        if unnotified := topics.difference(notified):
            # The commit itself notified the registered waiters, and followers of events can wait a moment: neither may
            # delay the start of a job.
            self.wake.notify(unnotified, soon=bool(notified) or unnotified == {EVENTS_TOPIC})

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        self.wake.add_topics(watch.topics)
        return watch

    def close(self) -> None:
        with contextlib.ExitStack() as parts:  # close every part, even if one fails
            for part in (self._watchdog, self.wake, self._vacuum, self._blocking_insert, self._threads):
                parts.callback(part.close)
            for connection in self._unused_connections:
                parts.callback(connection.close)


def start_thread(do: Callable[[], None], name: str) -> threading.Thread | None:
    """Start a daemon thread; None if the interpreter is shutting down: since Python 3.12 it then starts no threads."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def in_thread(do: Callable[[], T]) -> T:
    """Run `do` in a new thread and await its result."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    thread = start_thread(lambda: deliver(future, _answer(do)), "daybreak-open")
    if thread is None:
        return do()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do, and a closed store leaves no thread behind


def _answer(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except BaseException as error:  # noqa: BLE001 - handed to the caller
        return error

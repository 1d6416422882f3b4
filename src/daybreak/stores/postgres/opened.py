"""What an open store has: its threads and connections, and whoever listens for it."""

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
from daybreak.stores.postgres.connection_threads import ConnectionThreads, deliver
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.engine import Engine
from daybreak.stores.postgres.ledger import Lanes
from daybreak.stores.postgres.link import Link
from daybreak.stores.postgres.loop_connection import OnLoop
from daybreak.stores.postgres.prepared_calls import call_of
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.vacuum import Sweep
from daybreak.stores.postgres.wake import ListenedHub, Wake
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.stores.wakeups import HubWatch
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

T = TypeVar("T")
FOLD_AFTER = 300  # writes of this process; others fold, too


class OpenStore:
    def __init__(self, place: Address, world: World, hub: ListenedHub) -> None:
        self.place = place
        self.clock = ServerClock(world)
        self._pid = os.getpid()
        self._hub = hub
        self._sql = Statements("sql", place.schema)
        self._lanes = Lanes()
        self._habits = plain_path.ResourceHints()
        self._insert_one = call_of("insert_one", self._sql.call_insert_one)
        self._writes = 0
        self._watchdog = Watchdog()
        try:
            self._prepare()
        except BaseException:
            self._watchdog.close()
            raise
        self.clock.is_shared = True
        self._sweep = Sweep(place, self.clock, self._sql, self._watchdog)
        self._crew = ConnectionThreads(place, self.clock, self._watchdog, self._fold_if_due)
        self.wake = Wake(place, hub, self._watchdog)
        own = Link(place, self.clock)
        self._watchdog.watch(own.waiting)
        self._together = BlockingInsert(own, self._engine)
        self._on_loop: OnLoop | None = None

    def _prepare(self) -> None:
        """Look at the schema and bring it to our version. All of it is one transaction, so what was cut short, or not
        answered, is simply done again, while the caller is patient."""
        pause = 0.05
        with patience.within(patience.left(patience.PATIENCE.total_seconds())):
            while True:
                link = Link(self.place, self.clock)
                self._watchdog.watch(link.waiting)
                try:
                    schema.prepare(link, self.place)
                except (StoreUnavailable, psycopg.Error) as error:
                    was_cut = link.has_been_connected or isinstance(error, faults.Cut)
                    if not was_cut or patience.left() <= pause:
                        raise faults.working(self.place.name, error, sent=False, lost=False) from None
                    time.sleep(pause * (0.5 + RealWorld.chance.random()))
                    pause = min(2 * pause, 1.0)
                else:
                    return
                finally:
                    link.close()
                    self._watchdog.forget(link.waiting)

    @property
    def is_ours(self) -> bool:
        """False in a child that was forked since: threads stayed with the parent, and sockets are his."""
        return self._pid == os.getpid()

    def _engine(self, link: Link) -> Engine:
        return Engine(link, self._sql, self._lanes, self.clock, self, self._habits, self._insert_one)

    async def do(self, work: Callable[[Engine], T]) -> T:
        answer: T = await self._crew.do(lambda link: work(self._engine(link)))
        return answer

    def own_loop(self) -> None:
        """From now on what is one call is asked on this loop, by some of the connections that the crew would have."""
        loop = asyncio.get_running_loop()
        # Others cannot watch a socket, or (uvloop) stop without a word when it breaks.
        is_able = isinstance(loop, asyncio.SelectorEventLoop)
        if self._on_loop is None and is_able and self.place.connections > 1:
            call = call_of("exchange", self._sql.call_exchange)
            self._on_loop = OnLoop(self.place, call, self._watchdog, in_thread, self._keep_the_crew)
            self._crew.most = self.place.connections - self._on_loop.most

    def _keep_the_crew(self) -> None:
        """There will be no connections on the loop."""
        self._crew.most = self.place.connections

    async def leave_loop(self) -> None:
        if self._on_loop is not None:
            await self._on_loop.close()

    async def exchange(self, wanted: Exchange, now: int | None) -> Exchanged:
        on_loop, link = self._on_loop, None
        is_here = on_loop is not None and on_loop.loop is asyncio.get_running_loop() and now is None
        is_plain = plain_path.is_plain(wanted) and not self._habits.are_shared(wanted)
        if on_loop is not None and is_here and is_plain and not self.clock.must_be_read():
            link = on_loop.free()
        if on_loop is None or link is None:
            return await self.do(lambda engine: engine.exchange(wanted, now))
        asked, hands = self.clock.steady(), self.clock.hands(now)
        # Not told by whoever waits for it: those who gave up have changed what others wait for all the same.
        tell = functools.partial(self._tell_of, wanted)
        try:
            rows = await link.ask(on_loop.call, plain_path.packed(plain_path.exchange_params(wanted, now, hands)), tell)
        except psycopg.Error:  # others were in the way, and nothing was written
            return await self.do(lambda engine: engine.exchange(wanted, now, is_plain=False))
        said = rows[0][0]
        self.clock.note(rows[0][1] + hands[0], asked)
        if said != plain_path.DONE:
            if said == plain_path.SHARED:
                self._habits.note(wanted, are_shared=True)
            return await self.do(lambda engine: engine.exchange(wanted, now, is_plain=said == plain_path.SHARED))
        if not plain_path.knows_lanes(rows, self._lanes):
            await self.do(lambda engine: engine.know_lanes())
        return plain_path.exchanged(wanted, rows, self._lanes, hands[0])

    def _tell_of(self, wanted: Exchange, rows: list[Any]) -> None:
        if rows[0][0] == plain_path.DONE and (topics := plain_path.topics_of(wanted, rows)):
            self.committed(topics, left=len(rows) - 1)
            if self._writes >= FOLD_AFTER:
                with contextlib.suppress(StoreError):  # closed meanwhile
                    self._crew.give(lambda _: None)  # it folds afterwards

    def _fold_if_due(self, link: Link) -> None:
        if self._writes >= FOLD_AFTER:
            self._writes = 0
            with contextlib.suppress(Exception):  # who comes next folds
                link.ask(self._sql.fold)

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return self._together.insert(specs)

    def within(self) -> tuple[str, str] | None:
        return self.wake.within()

    def committed(self, topics: set[str], told: Iterable[str] = (), *, left: int = 0) -> None:
        self._writes += 1
        if left:
            self._sweep.note(left)
        if topics:
            self._hub.wake(topics)
        if untold := topics.difference(told):
            # Whoever was seen waiting has heard, and whoever follows events has time: they cost nobody's start.
            self.wake.tell(untold, soon=bool(told) or untold == {EVENTS_TOPIC})

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        self.wake.want(watch.topics)
        return watch

    def close(self) -> None:
        with contextlib.ExitStack() as parts:  # what fails to close keeps no other part open
            for part in (self._watchdog, self.wake, self._sweep, self._together, self._crew):
                parts.callback(part.close)


def start_thread(do: Callable[[], None], name: str) -> threading.Thread | None:
    """None if it cannot be: an interpreter that ends starts no more of them, from Python 3.12 on."""
    thread = threading.Thread(target=do, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def in_thread(do: Callable[[], T]) -> T:
    """Do it beside the loop, in a thread of its own."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    thread = start_thread(lambda: deliver(future, _answer(do)), "daybreak-open")
    if thread is None:
        return do()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do, and whoever closed a store leaves no thread behind


def _answer(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except BaseException as error:  # noqa: BLE001 - handed to whoever asked
        return error

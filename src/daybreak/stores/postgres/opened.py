"""What an open store has: its threads and connections, and whoever listens for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from daybreak.model import JobSpec
from daybreak.store import Inserted
from daybreak.stores.hub import HubWatch
from daybreak.stores.postgres import schema
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.crew import Crew, deliver
from daybreak.stores.postgres.engine import Engine
from daybreak.stores.postgres.fast import Habits
from daybreak.stores.postgres.ledger import Lanes
from daybreak.stores.postgres.link import Link
from daybreak.stores.postgres.now import Together
from daybreak.stores.postgres.place import Place
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.wake import ListenedHub, Wake
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.world import World

T = TypeVar("T")
FOLD_AFTER = 300  # writes of this process; others fold, too


class Opened:
    def __init__(self, place: Place, world: World, hub: ListenedHub) -> None:
        self.place = place
        self.clock = ServerClock(world)
        self._pid = os.getpid()
        self._hub = hub
        self._sql = Statements("sql", place.schema)
        self._lanes = Lanes()
        self._habits = Habits()
        self._writes = 0
        first = Link(place, self.clock)
        try:
            schema.prepare(first, place)
        finally:
            first.close()
        self._watchdog = Watchdog(place.answer_within)
        self._crew = Crew(place, self.clock, self._watchdog, self._fold_if_due)
        self.wake = Wake(place, hub, self._watchdog)
        own = Link(place, self.clock)
        self._watchdog.watch(own.waiting)
        self._together = Together(own, self._engine)

    @property
    def is_ours(self) -> bool:
        """False in a child that was forked since: threads stayed with the parent, and sockets are his."""
        return self._pid == os.getpid()

    def _engine(self, link: Link) -> Engine:
        return Engine(link, self._sql, self._lanes, self.clock, self, self._habits)

    async def do(self, work: Callable[[Engine], T]) -> T:
        answer: T = await self._crew.do(lambda link: work(self._engine(link)))
        return answer

    def _fold_if_due(self, link: Link) -> None:
        if self._writes >= FOLD_AFTER:
            self._writes = 0
            with contextlib.suppress(Exception):  # who comes next folds
                link.ask(self._sql.fold)

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        return self._together.insert(specs)

    def within(self) -> tuple[str, str] | None:
        return self.wake.within()

    def committed(self, topics: set[str], told: Iterable[str] = ()) -> None:
        self._writes += 1
        if topics:
            self._hub.wake(topics)
        if left := topics.difference(told):
            self.wake.tell(left)

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = self._hub.watch(topics)
        self.wake.want(watch.topics)
        return watch

    def close(self) -> None:
        with contextlib.ExitStack() as parts:  # what fails to close keeps no other part open
            for part in (self._watchdog, self.wake, self._together, self._crew):
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
    except BaseException as trouble:  # noqa: BLE001 - handed to whoever asked
        return trouble

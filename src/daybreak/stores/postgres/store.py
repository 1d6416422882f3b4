"""The seam over one PostgreSQL database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self

from daybreak.core.errors import StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.core.units import clean, micros, span
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    ConnectLimit,
    Exchange,
    Exchanged,
    Extended,
    Feed,
    Filter,
    Finding,
    Inserted,
    KnownKey,
    Moved,
    Page,
    Position,
    Purge,
    Purged,
    Query,
    Reap,
    Tally,
    Total,
    Traits,
    Usage,
    Watch,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_beat, cleaned_moved, cleaned_settlement
from daybreak.stores.postgres import amend, event_feed, outbox, read, records, settle
from daybreak.stores.postgres.address import place_of
from daybreak.stores.postgres.adopt import adopt, pack
from daybreak.stores.postgres.examine import examine
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.opened import OpenStore, in_thread
from daybreak.stores.postgres.transactional_submit import insert_within, insert_within_async
from daybreak.stores.postgres.wake import ListenedHub
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

TRIES: Final = 100


class PostgresStore:
    """Jobs in one schema of one database, for any number of processes on any number of machines.

    The URL is libpq's, with four options of ours: `schema` (daybreak), `connections` (4: how many one process uses
    for its questions; one more listens, one more serves `insert_now`), `answer_within` (60s: when an answer that
    does not come is given up) and `connect_within` (5s: likewise a connection; `connect_limit` lets it follow what is
    seen)."""

    traits = Traits(
        name="postgres",
        durable="every commit is synced to the server's disk, by its settings",
        shared=True,
        features=frozenset({"resources"}),
    )

    def __init__(
        self,
        url: str,
        *,
        world: World | None = None,
        schema: str | None = None,
        connections: int | None = None,
        answer_within: timedelta | None = None,
        connect_within: timedelta | None = None,
        connect_limit: ConnectLimit | None = None,
    ) -> None:
        self.place = place_of(
            url,
            schema=schema,
            connections=connections,
            answer_within=answer_within,
            connect_within=connect_within,
            connect_limit=connect_limit,
        )
        self._world = world or RealWorld()
        self._hub = ListenedHub()
        self._opening = threading.Lock()
        self._opened: OpenStore | None = None

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._opened is None:
            limits = patience.handed_over()
            await in_thread(lambda: self._open(limits))
        return self

    def _open(self, limits: patience.Handed) -> None:
        # Also if nobody waits for it any more: then it is open for the next one who asks, and for close.
        with self._opening, patience.taken(limits):
            if self._opened is None:
                self._opened = OpenStore(self.place, self._world, self._hub)

    async def close(self) -> None:
        """Answer everyone who asked, then hang up. Closing twice is fine; a forked child only forgets."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.is_ours:
            await opened.leave_loop()
            await in_thread(opened.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _in_use(self) -> OpenStore:
        opened = self._opened
        if opened is None:
            raise StoreUnavailable(
                f"{self.place.name} is not open: use 'async with PostgresStore(...)', or await open() first"
            )
        if not opened.is_ours:
            raise StoreUnavailable(f"{self.place.name} was opened before a fork: open a store of its own in the child")
        return opened

    async def _write(self, run: Callable[[Ledger], Any], now: datetime | None) -> Any:
        opened = self._in_use()
        return await opened.do(lambda engine: engine.write(run, _micros(now)))

    async def _read(self, run: Callable[[Ledger], Any]) -> Any:
        return await self._in_use().do(lambda engine: engine.read(run))

    # -- the seam ------------------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return await self._in_use().do(lambda engine: engine.insert(specs, _micros(now)))

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """`insert` for a thread that waits: it asks the server itself if nobody else does, else they ask together."""
        return self._in_use().insert_now(specs)

    def insert_within(self, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
        """Submit in the caller's own transaction: see within.py. The store need not be open; its schema must exist."""
        return insert_within(self.place, connection, specs)

    async def insert_within_async(self, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
        return await insert_within_async(self.place, connection, specs)

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        records.check([*exchange.put, *(put for said in exchange.settle for put in said.puts)])
        cleaned = [cleaned_settlement(said) for said in exchange.settle]
        wanted = Exchange(settle=cleaned, insert=exchange.insert, put=exchange.put, claim=exchange.claim)
        return await self._in_use().exchange(wanted, _micros(now))

    def own_loop(self) -> None:
        self._in_use().own_loop()

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        beats = [cleaned_beat(beat) for beat in beats]
        return await self._write(lambda ledger: settle.extend(ledger, beats), now)  # type: ignore[no-any-return]

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        opened = self._in_use()
        if now is not None:
            return await self._write(  # type: ignore[no-any-return]
                lambda ledger: settle.reap(ledger, reap, ledger.steady, span(reap.watched_for)), now
            )
        clock = opened.clock
        asked_at, even_for = clock.at_the_earliest(), clock.even_for()
        watched = span(reap.watched_for) if even_for is None else min(span(reap.watched_for), even_for)
        return await opened.do(lambda engine: engine.reap(reap, asked_at, watched))

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        return await self._in_use().do(lambda engine: engine.advance(limit, _micros(now)))

    async def amend(self, wanted: Amend, *, now: datetime | None = None) -> Amended:
        wanted = cleaned_amend(wanted)
        if wanted.filter is None:
            return await self._write(lambda ledger: amend.amend(ledger, wanted), now)  # type: ignore[no-any-return]
        seqs, cursor = await self._read(lambda ledger: amend.find_chunk(ledger, wanted))
        return await self._write(  # type: ignore[no-any-return]
            lambda ledger: amend.amend_chunk(ledger, wanted, seqs, cursor), now
        )

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        found = await self._read(lambda ledger: read.get(ledger, list(jobs)))
        if None in found:
            await self._take_in()
            found = await self._read(lambda ledger: read.get(ledger, list(jobs)))
        return found  # type: ignore[no-any-return]

    async def _take_in(self) -> None:
        """Accept what was committed within other transactions, so that people see it also while nobody claims."""
        for _ in range(TRIES):
            if not await self._read(outbox.is_there):
                return
            if not await self._write(lambda ledger: outbox.accept(ledger, 500), None):
                await asyncio.sleep(0.01)  # someone else is at it

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        return await self._read(lambda ledger: read.known_keys(ledger, keys, _micros(now)))  # type: ignore[no-any-return]

    async def find(self, query: Query) -> Page:
        if query.cursor is None:
            await self._take_in()
        return await self._read(lambda ledger: read.find(ledger, query))  # type: ignore[no-any-return]

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        await self._take_in()
        return await self._read(lambda ledger: read.count(ledger, where))  # type: ignore[no-any-return]

    async def totals(self, queue: str | None = None) -> list[Total]:
        await self._take_in()
        return await self._read(lambda ledger: read.totals(ledger, queue))  # type: ignore[no-any-return]

    async def position(self, job: str) -> Position | None:
        return await self._read(lambda ledger: read.position(ledger, job))  # type: ignore[no-any-return]

    async def usage(self, name: str | None = None) -> list[Usage]:
        return await self._read(lambda ledger: read.usage(ledger, name))  # type: ignore[no-any-return]

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        return await self._read(lambda ledger: event_feed.events(ledger, after, limit))  # type: ignore[no-any-return]

    async def history(self, job: str) -> list[Event]:
        return await self._read(lambda ledger: read.history(ledger, job))  # type: ignore[no-any-return]

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return await self._in_use().do(lambda engine: engine.purge(purge, _micros(now)))

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        return await self._read(lambda ledger: pack(ledger, jobs))  # type: ignore[no-any-return]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned, by = [cleaned_moved(one) for one in moved], clean(by)
        return await self._write(lambda ledger: adopt(ledger, cleaned, by), now)  # type: ignore[no-any-return]

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        records.check(puts)
        return await self._in_use().do(lambda engine: engine.put(puts, _micros(now)))

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return await self._read(lambda ledger: records.records(ledger, kind, name))  # type: ignore[no-any-return]

    async def examine(self) -> list[Finding]:
        opened = self._in_use()
        return await opened.do(lambda engine: examine(engine.link, opened.wake.listens))

    def watch(self, topics: Iterable[str]) -> Watch:
        return self._in_use().watch(topics)


def _micros(now: datetime | None) -> int | None:
    return None if now is None else micros(now)

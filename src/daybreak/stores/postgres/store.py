"""PostgresStore: the store protocol on one PostgreSQL database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self

from msgspec.structs import replace

from daybreak.core.errors import StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.core.units import clean, micros, period, span
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    CachePage,
    CacheQuery,
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
    Uncache,
    Uncached,
    Usage,
    Watch,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_beat, cleaned_moved, cleaned_settlement
from daybreak.stores.kernel import adopt, amend, landings, records, settle
from daybreak.stores.kernel.exchange import puts_of
from daybreak.stores.postgres import event_feed, outbox, read
from daybreak.stores.postgres.address import parse_address
from daybreak.stores.postgres.connections import OpenStore, in_thread
from daybreak.stores.postgres.examine import examine
from daybreak.stores.postgres.transaction import PostgresTransaction
from daybreak.stores.postgres.transactional_submit import check, insert_within, insert_within_async
from daybreak.stores.postgres.wake import ListenedHub
from daybreak.system import patience
from daybreak.system.ports import RealWorld, World

MAX_OUTBOX_ATTEMPTS: Final = 100


class PostgresStore:
    """Jobs in one schema of one database, for any number of processes on any number of machines.

    The URL is libpq's, with four options of Daybreak: `schema` (default daybreak), `connections` (4: how many one
    process uses for its calls; one more listens, one more serves `insert_now`), `answer_within` (60s: how long a call
    may wait for its answer) and `connect_within` (5s: how long connecting may take; `connect_limit` adapts it to the
    times that were measured). `fast_path=False` has every request take the general path, which gives the same
    results in more round trips."""

    traits = Traits(
        name="postgres",
        durable="every commit is synced to the server's disk, by its settings",
        shared=True,
        features=frozenset({"resources", "batches", "cache"}),
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
        fast_path: bool = True,
    ) -> None:
        self.address = parse_address(
            url,
            schema=schema,
            connections=connections,
            answer_within=answer_within,
            connect_within=connect_within,
            connect_limit=connect_limit,
        )
        self._world = world or RealWorld()
        self._uses_plain_path = fast_path
        self._hub = ListenedHub()
        self._opening = threading.Lock()
        self._opened: OpenStore | None = None

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._opened is None:
            limits = patience.current_limits()
            await in_thread(lambda: self._open(limits))
        return self

    def _open(self, limits: patience.Limits) -> None:
        # This completes even if the caller of open() was cancelled: the next call, or close(), then finds it open.
        with self._opening, patience.applied(limits):
            if self._opened is None:
                self._opened = OpenStore(self.address, self._world, self._hub, uses_plain_path=self._uses_plain_path)

    async def close(self) -> None:
        """Answer every pending call, then disconnect. Closing twice is fine. A forked child disconnects nothing: the
        connections belong to its parent."""
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
                f"{self.address.name} is not open: use 'async with PostgresStore(...)', or await open() first"
            )
        if not opened.is_ours:
            raise StoreUnavailable(f"{self.address.name} was opened before a fork: open a new store in the child")
        return opened

    async def _write(self, run: Callable[[PostgresTransaction], Any], now: datetime | None) -> Any:
        opened = self._in_use()
        return await opened.do(lambda engine: engine.write(run, _micros(now)))

    async def _read(self, run: Callable[[PostgresTransaction], Any]) -> Any:
        return await self._in_use().do(lambda engine: engine.read(run))

    # -- the store protocol --------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return await self._in_use().do(lambda engine: engine.insert(specs, _micros(now)))

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """Blocking `insert`. Threads that call it at the same time share one round trip and one commit."""
        return self._in_use().insert_now(specs)

    def insert_within(self, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
        """Submit in the caller's own transaction, see transactional_submit.py. The store need not be open, but its
        schema must exist."""
        return insert_within(self.address, connection, specs)

    async def insert_within_async(self, connection: Any, specs: Sequence[JobSpec]) -> list[str]:
        return await insert_within_async(self.address, connection, specs)

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        records.check(puts_of(exchange))
        cleaned = [cleaned_settlement(settlement) for settlement in exchange.settle]
        request = Exchange(settle=cleaned, insert=exchange.insert, put=exchange.put, claim=exchange.claim)
        return await self._in_use().exchange(request, _micros(now))

    def own_loop(self) -> None:
        self._in_use().own_loop()

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        beats = [cleaned_beat(beat) for beat in beats]
        return await self._write(lambda tx: settle.extend(tx, beats), now)  # type: ignore[no-any-return]

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        opened = self._in_use()
        if now is not None:
            return await self._write(  # type: ignore[no-any-return]
                lambda tx: settle.reap(tx, reap, tx.steady), now
            )
        clock = opened.clock
        asked_at, even_for = clock.at_the_earliest(reap.asked_at), clock.even_for()
        if even_for is not None and even_for < span(reap.watched_for):
            reap = replace(reap, watched_for=period(even_for))
        return await opened.do(lambda engine: engine.reap(reap, asked_at))

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        return await self._in_use().do(lambda engine: engine.advance(limit, _micros(now)))

    async def amend(self, request: Amend, *, now: datetime | None = None) -> Amended:
        request = cleaned_amend(request)
        if request.filter is None:
            return await self._write(lambda tx: amend.amend(tx, request), now)  # type: ignore[no-any-return]
        seqs, cursor = await self._read(lambda tx: read.find_chunk(tx, request))
        return await self._write(  # type: ignore[no-any-return]
            lambda tx: amend.amend_chunk(tx, request, seqs, cursor), now
        )

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        found = await self._read(lambda tx: read.get(tx, list(jobs)))
        if None in found:
            await self._accept_outbox()
            found = await self._read(lambda tx: read.get(tx, list(jobs)))
        return found  # type: ignore[no-any-return]

    async def _accept_outbox(self) -> None:
        """Accept jobs that other programs committed in their own transactions, so that a reader sees them even while no
        worker claims."""
        for _ in range(MAX_OUTBOX_ATTEMPTS):
            if not await self._in_use().do(lambda engine: engine.has_incoming()):
                return
            if not await self._write(lambda tx: outbox.accept(tx, 500), None):
                await asyncio.sleep(0.01)  # another process is accepting them

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        return await self._read(lambda tx: read.known_keys(tx, keys, _micros(now)))  # type: ignore[no-any-return]

    async def find(self, query: Query) -> Page:
        if query.cursor is None:
            await self._accept_outbox()
        return await self._read(lambda tx: read.find(tx, query))  # type: ignore[no-any-return]

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        await self._accept_outbox()
        return await self._read(lambda tx: read.count(tx, where))  # type: ignore[no-any-return]

    async def totals(self, queue: str | None = None) -> list[Total]:
        await self._accept_outbox()
        return await self._read(lambda tx: read.totals(tx, queue))  # type: ignore[no-any-return]

    async def position(self, job: str) -> Position | None:
        return await self._read(lambda tx: read.position(tx, job))  # type: ignore[no-any-return]

    async def usage(self, name: str | None = None) -> list[Usage]:
        return await self._read(lambda tx: read.usage(tx, name))  # type: ignore[no-any-return]

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        return await self._read(lambda tx: event_feed.events(tx, after, limit))  # type: ignore[no-any-return]

    async def history(self, job: str) -> list[Event]:
        return await self._read(lambda tx: read.history(tx, job))  # type: ignore[no-any-return]

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return await self._in_use().do(lambda engine: engine.purge(purge, _micros(now)))

    async def cached(self, query: CacheQuery, *, now: datetime | None = None) -> CachePage:
        return await self._read(lambda tx: read.cached(tx, query, now))  # type: ignore[no-any-return]

    async def uncache(self, request: Uncache, *, now: datetime | None = None) -> Uncached:
        return await self._in_use().do(
            lambda engine: engine.write(lambda tx: landings.uncache(tx, request), _micros(now))
        )

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        return await self._read(lambda tx: read.pack(tx, jobs))  # type: ignore[no-any-return]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned, by = [cleaned_moved(one) for one in moved], clean(by)
        for one in cleaned:
            check(one.job.spec)
        return await self._write(lambda tx: adopt.adopt(tx, cleaned, by), now)  # type: ignore[no-any-return]

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        records.check(puts)
        return await self._in_use().do(lambda engine: engine.put(puts, _micros(now)))

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return await self._read(lambda tx: read.records(tx, kind, name))  # type: ignore[no-any-return]

    async def examine(self) -> list[Finding]:
        opened = self._in_use()
        return await opened.do(lambda engine: examine(engine.connection, opened.wake.listens))

    def watch(self, topics: Iterable[str]) -> Watch:
        return self._in_use().watch(topics)


def _micros(now: datetime | None) -> int | None:
    return None if now is None else micros(now)

"""The seam on top of one SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from daybreak.core.errors import StoreError, StoreUnavailable
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record
from daybreak.core.units import clean
from daybreak.store.protocol import (
    Advanced,
    Amend,
    Amended,
    Beat,
    CachePage,
    CacheQuery,
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
from daybreak.store.sanitize import cleaned_amend, cleaned_beat, cleaned_exchange, cleaned_moved
from daybreak.stores.kernel import amend, landings, pass_time, records, settle
from daybreak.stores.kernel.adopt import adopt
from daybreak.stores.kernel.exchange import exchange as do_exchange
from daybreak.stores.kernel.exchange import puts_of
from daybreak.stores.kernel.purge import purge as purge_chunk
from daybreak.stores.sqlite import read, schema
from daybreak.stores.sqlite.connections import OpenStore, in_thread
from daybreak.stores.sqlite.engine import Engine, Place, Request
from daybreak.stores.sqlite.examine import examine
from daybreak.stores.sqlite.faults import translate
from daybreak.stores.sqlite.side_files import wake_folder, write_lock_file
from daybreak.stores.sqlite.transaction import SqliteTransaction
from daybreak.stores.sqlite.wake import Wake
from daybreak.stores.sqlite.write_lock import write_lock_for
from daybreak.stores.wakeups import ANY, HubWatch, Wakeups
from daybreak.system import platform
from daybreak.system.ports import RealWorld, World

POLL_INTERVAL = timedelta(seconds=1)
POLL_INTERVAL_WITHOUT_DATAGRAMS = timedelta(milliseconds=20)


class SqliteStore:
    """Jobs in one file, for any number of processes on one machine.

    `threaded=False` does all work in the caller's thread, for tests on virtual time. `stuck_after` is how long a
    process that is stopped while it writes may block the others before they kill it. `fast_path=False` sends every job
    through the kernel, for tests: only the speed differs."""

    traits = Traits(
        name="sqlite",
        durable="every commit is synced to disk (WAL, synchronous=FULL)",
        shared=True,
        features=frozenset({"resources", "cache", "batches"}),
    )

    def __init__(
        self,
        path: str | Path,
        *,
        world: World | None = None,
        threaded: bool = True,
        vfs: str | None = None,
        boot: str | None = None,
        stuck_after: timedelta = timedelta(seconds=10),
        fast_path: bool = True,
    ) -> None:
        self.path = Path(path)
        self._world = world or RealWorld()
        self._threaded = threaded
        self._vfs = vfs
        self._boot = boot
        self._stuck_after = stuck_after
        self._fast_path = fast_path
        self._known = schema.CURRENT
        self._hub = Wakeups()
        self._opening = threading.Lock()
        self._opened: OpenStore | None = None
        self._polling: asyncio.Task[None] | None = None

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        if self._opened is None:
            if self._threaded:
                await in_thread(self._open)
            else:
                self._open()
        return self

    def _open(self) -> None:
        # Even if the caller was cancelled: then the store is open for the next caller, and for close.
        with self._opening:
            if self._opened is None:
                self._opened = self._open_file()

    def _open_file(self) -> OpenStore:
        schema.check_library()
        schema.check_place(self.path)
        self.path = self.path.resolve()
        place = Place(self.path, self._vfs, self._boot or platform.boot_id(), self._known)
        try:
            write_lock = write_lock_for(write_lock_file(self.path), self._stuck_after)
        except OSError as error:
            raise translate(self.path, error) from error
        try:
            engine = Engine(place, write_lock, self._world, fast_path=self._fast_path)
        except BaseException:
            write_lock.close()
            raise
        wake = Wake(wake_folder(self.path))
        return OpenStore(place, write_lock, engine, wake, self._hub, threaded=self._threaded)

    async def close(self) -> None:
        """Answer all requests, then close the file. Closing twice is fine; a forked child only forgets the parent's
        store."""
        opened, self._opened = self._opened, None
        polling, self._polling = self._polling, None
        if opened is None or not opened.is_ours:
            return
        if polling is not None:
            with contextlib.suppress(RuntimeError):  # the task ended with its loop
                polling.get_loop().call_soon_threadsafe(polling.cancel)
        opened.wake.stop_listening()
        if self._threaded:
            await in_thread(opened.close)
        else:
            opened.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _in_use(self) -> OpenStore:
        opened = self._opened
        if opened is None:
            raise StoreUnavailable(f"{self.path} is not open: use 'async with SqliteStore(...)', or await open() first")
        if not opened.is_ours:
            raise StoreUnavailable(f"{self.path} was opened before a fork: open a store of its own in the child")
        return opened

    async def _write(self, run: Callable[[SqliteTransaction], Any], now: datetime | None, weight: int = 1) -> Any:
        return await self._in_use().write(Request(run, now, weight))

    async def _read(self, run: Callable[[SqliteTransaction], Any], *, long: bool = False) -> Any:
        return await self._in_use().read(Request(run), long=long)

    # -- the seam ------------------------------------------------------------------------------------------------------

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return await self._in_use().write(Request.insert(specs, now))  # type: ignore[no-any-return]

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """`insert` for a blocking thread: it writes by itself if no other thread does, else it shares the next
        commit."""
        return self._in_use().write_now(Request.insert(specs))  # type: ignore[no-any-return]

    def own_loop(self) -> None:
        self._in_use().own_loop()

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        exchange = cleaned_exchange(exchange)
        records.check(puts_of(exchange))
        return await self._write(lambda tx: do_exchange(tx, exchange), now, _weight(exchange))  # type: ignore[no-any-return]

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        beats = [cleaned_beat(beat) for beat in beats]
        return await self._write(lambda tx: settle.extend(tx, beats), now)  # type: ignore[no-any-return]

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        opened = self._in_use()
        _, asked_at = opened.times(now)
        if now is None and reap.asked_at is not None:
            asked_at = min(asked_at, opened.steady_at(reap.asked_at))
        return await self._write(lambda tx: settle.reap(tx, reap, asked_at), now)  # type: ignore[no-any-return]

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        return await self._write(lambda tx: pass_time.advance(tx, limit), now)  # type: ignore[no-any-return]

    async def amend(self, request: Amend, *, now: datetime | None = None) -> Amended:
        request = cleaned_amend(request)
        if request.filter is None:
            return await self._write(lambda tx: amend.amend(tx, request), now)  # type: ignore[no-any-return]
        seqs, cursor = await self._read(lambda tx: read.find_chunk(tx, request), long=True)
        return await self._write(  # type: ignore[no-any-return]
            lambda tx: amend.amend_chunk(tx, request, seqs, cursor), now, len(seqs)
        )

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda tx: read.get(tx, list(jobs)))  # type: ignore[no-any-return]

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        return await self._read(lambda tx: read.known_keys(tx, keys, now))  # type: ignore[no-any-return]

    async def find(self, query: Query) -> Page:
        return await self._read(lambda tx: read.find(tx, query), long=True)  # type: ignore[no-any-return]

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        return await self._read(lambda tx: read.count(tx, where), long=True)  # type: ignore[no-any-return]

    async def totals(self, queue: str | None = None) -> list[Total]:
        return await self._read(lambda tx: read.totals(tx, queue))  # type: ignore[no-any-return]

    async def position(self, job: str) -> Position | None:
        return await self._read(lambda tx: read.position(tx, job))  # type: ignore[no-any-return]

    async def usage(self, name: str | None = None) -> list[Usage]:
        return await self._read(lambda tx: read.usage(tx, name))  # type: ignore[no-any-return]

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        return await self._read(lambda tx: read.events(tx, after, limit))  # type: ignore[no-any-return]

    async def history(self, job: str) -> list[Event]:
        return await self._read(lambda tx: read.history(tx, job))  # type: ignore[no-any-return]

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return await self._write(lambda tx: _purge(tx, purge), now)  # type: ignore[no-any-return]

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        return await self._read(lambda tx: read.pack(tx, jobs), long=True)  # type: ignore[no-any-return]

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned, by = [cleaned_moved(one) for one in moved], clean(by)
        return await self._write(lambda tx: adopt(tx, cleaned, by), now, len(moved))  # type: ignore[no-any-return]

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        records.check(puts)
        return await self._write(lambda tx: records.put(tx, puts), now)  # type: ignore[no-any-return]

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return await self._read(lambda tx: read.records(tx, kind, name))  # type: ignore[no-any-return]

    async def cached(self, query: CacheQuery, *, now: datetime | None = None) -> CachePage:
        return await self._read(lambda tx: read.cached(tx, query, now), long=True)  # type: ignore[no-any-return]

    async def uncache(self, request: Uncache, *, now: datetime | None = None) -> Uncached:
        return await self._write(lambda tx: landings.uncache(tx, request), now)  # type: ignore[no-any-return]

    async def examine(self) -> list[Finding]:
        return await in_thread(lambda: list(examine(self.path)))

    # -- waking --------------------------------------------------------------------------------------------------------

    def watch(self, topics: Iterable[str]) -> Watch:
        opened = self._in_use()
        watch: HubWatch = self._hub.watch(topics)
        if self._threaded and not self._is_polling():
            interval = POLL_INTERVAL_WITHOUT_DATAGRAMS
            if opened.wake.listen(self._hub.wake):
                interval = POLL_INTERVAL
            self._polling = asyncio.get_running_loop().create_task(self._poll(interval))
        return watch

    def _is_polling(self) -> bool:
        polling = self._polling
        return polling is not None and not polling.done() and polling.get_loop().is_running()

    async def _poll(self, interval: timedelta) -> None:
        """Notice commits of other processes whose datagram was lost."""
        while (opened := self._opened) is not None:
            if self._hub.is_watched:
                # Errors of the file are reported to the callers of operations; polling continues.
                with contextlib.suppress(StoreError):
                    if await opened.has_changed():
                        self._hub.wake([ANY])
            await asyncio.sleep(interval.total_seconds())


def _weight(exchange: Exchange) -> int:
    inserts = len(exchange.insert) + sum(len(put.inserts) for put in exchange.put)
    return len(exchange.settle) + inserts + (exchange.claim.limit if exchange.claim else 0)


def _purge(tx: SqliteTransaction, request: Purge) -> Purged:
    purged = purge_chunk(tx, request)
    tx.keep_time()
    tx.give_back_pages()
    return purged

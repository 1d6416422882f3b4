"""The seam on data in memory. Each operation runs without an await, so it is atomic by construction."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Self, TypeVar

from msgspec.structs import replace

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event
from daybreak.core.flights import is_flight_cause
from daybreak.core.model import Job, JobSpec, Lease, Put, Record, State
from daybreak.core.resource_gauge import Gauge
from daybreak.core.units import clean, micros, moment
from daybreak.store.protocol import (
    LATEST,
    POSITION_EXACT_TO,
    SCANNED_PER_CHUNK,
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
    clock_jump,
)
from daybreak.store.sanitize import cleaned_amend, cleaned_beat, cleaned_moved, cleaned_settlement
from daybreak.stores.kernel import adopt, amend, landings, pass_time, records, resource_queue, settle
from daybreak.stores.kernel.exchange import exchange, puts_of
from daybreak.stores.kernel.insert import insert
from daybreak.stores.kernel.port import FlightEntry, entry_of
from daybreak.stores.kernel.purge import purge as purge_chunk
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory.book import Book
from daybreak.stores.memory.transaction import MemoryTransaction
from daybreak.stores.wakeups import Wakeups
from daybreak.system.ports import RealWorld, World

T = TypeVar("T")


class MemoryStore:
    """Jobs in the memory of this process; they end with it."""

    traits = Traits(
        name="memory",
        durable="nothing outlives the process",
        shared=False,
        persistent=False,
        features=frozenset({"resources", "cache", "batches"}),
    )

    def __init__(self, world: World | None = None) -> None:
        self._world = world or RealWorld()
        self._anchor = self._world.wall() - self._world.steady()
        self._book = Book()
        self._hub = Wakeups()

    async def open(self) -> Self:
        return self

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _times(self, now: datetime | None) -> tuple[int, int]:
        """The store's wall and steady time."""
        if now is not None:
            return micros(now), micros(now)
        return self._world.wall(), self._anchor + self._world.steady()

    def _write(self, run: Callable[[Transaction], T], now: datetime | None) -> T:
        """Run one transaction. Nothing awaits in it, so no other operation sees it half done."""
        tx = self._begin(*self._times(now))
        answer = run(tx)
        resource_queue.offer_freed(tx)
        self._hub.wake(tx.commit())
        return answer

    def _begin(self, wall: int, steady: int) -> MemoryTransaction:
        return MemoryTransaction(self._book, wall, steady)

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        return self._write(lambda tx: insert(tx, specs), now)

    async def exchange(self, request: Exchange, *, now: datetime | None = None) -> Exchanged:
        records.check(puts_of(request))
        cleaned = replace(request, settle=[cleaned_settlement(settlement) for settlement in request.settle])
        return self._write(lambda tx: exchange(tx, cleaned), now)

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        cleaned = [cleaned_beat(beat) for beat in beats]
        return self._write(lambda tx: settle.extend(tx, cleaned), now)

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        _, asked_at = self._times(now)
        if now is None and reap.asked_at is not None:
            asked_at = min(asked_at, self._anchor + reap.asked_at)
        return self._write(lambda tx: settle.reap(tx, reap, asked_at), now)

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        return self._write(lambda tx: pass_time.advance(tx, limit), now)

    async def amend(self, request: Amend, *, now: datetime | None = None) -> Amended:
        request = cleaned_amend(request)
        if request.filter is None:
            return self._write(lambda tx: amend.amend(tx, request), now)
        seqs, cursor = self._chunk(request, request.filter)
        return self._write(lambda tx: amend.amend_chunk(tx, request, seqs, cursor), now)

    def _chunk(self, amend: Amend, where: Filter) -> tuple[list[int], str | None]:
        # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
        before = _number(amend.cursor) if amend.cursor else self._book.seq + 1
        scanned = sorted((seq for seq in self._book.jobs if seq < before), reverse=True)[:SCANNED_PER_CHUNK]
        chunk: list[int] = []
        for seq in scanned:
            if self._book.jobs[seq].matches(where):
                chunk.append(seq)
            if len(chunk) == amend.limit:
                return chunk, str(seq)
        return chunk, str(scanned[-1]) if len(scanned) == SCANNED_PER_CHUNK else None

    # -- reading -------------------------------------------------------------------------------------------------------

    def _find(self, job: str) -> Row | None:
        return self._book.jobs.get(self._book.ids.get(job, 0))

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        return [self._job_of(row) if (row := self._find(job)) else None for job in jobs]

    def _job_of(self, row: Row) -> Job:
        return self._with_result(row).as_job()

    def _with_result(self, row: Row) -> Row:
        """A job with its result, which may be in an entry of the cache."""
        if row.result_of is None:
            return row
        whole = copy.copy(row)
        entry = self._book.entries.get(row.result_of)
        whole.result = None if entry is None else entry.result
        return whole

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        found = self._begin(*self._times(now)).keys_of(keys)
        return [KnownKey(e.job, e.digest, e.seq is None) if (e := found.get(key)) else None for key in keys]

    async def find(self, query: Query) -> Page:
        key = _order_of(query.filter)
        rows = sorted(self._book.jobs.values(), key=key)
        after = _parse(query.cursor)
        jobs: list[Job] = []
        last: tuple[int, ...] = ()
        for row in rows:
            if not row.matches(query.filter) or (after is not None and key(row) <= after):
                continue
            if len(jobs) == query.limit:
                return Page(jobs, ":".join(map(str, last)))
            jobs.append(self._job_of(row))
            last = key(row)
        return Page(jobs, None)

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        found = Counter((*row.name, row.priority, row.state) for row in self._book.jobs.values() if row.matches(where))
        return sorted(Tally(*cell, n) for cell, n in found.items())

    async def totals(self, queue: str | None = None) -> list[Total]:
        return sorted(
            Total(*lane, priority, what, n, took)
            for (lane, priority), counters in self._book.totals.items()
            for what, (n, took) in counters.items()
            if queue in (None, lane[0])
        )

    async def position(self, job: str) -> Position | None:
        row = self._find(job)
        if row is None or row.state not in (State.QUEUED, State.BLOCKED):
            return None
        among = self._book.ready if row.state is State.QUEUED else self._book.blocked[row.cause or ""]
        ahead = among.ahead_of(row.queue, row.rank)
        return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)

    async def usage(self, name: str | None = None) -> list[Usage]:
        book = self._book
        known = {called for kind, called in book.records if kind == "resource"}
        known |= {cause for cause in book.blocked if not is_flight_cause(cause)}
        known |= {called for called, gauge in book.gauges.items() if gauge.used or gauge.shut_until}
        return [self._usage(called) for called in sorted(known) if name in (None, called)]

    def _usage(self, resource: str) -> Usage:
        gauge = self._book.gauges.get(resource, Gauge())
        shut_until = moment(gauge.shut_until) if gauge.shut_until else None
        return Usage(name=resource, used=gauge.used, waiting=self._book.waiting(resource), shut_until=shut_until)

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        book = self._book
        end = book.feed_start + len(book.feed)
        if after == LATEST:
            return Feed([], str(end))
        start = book.feed_start if after is None else _number(after)
        if not book.feed_start <= start <= end:
            raise CursorExpired(str(after))
        found = [event for _, event in book.feed[start - book.feed_start :][:limit]]
        cursors = [str(start + seen) for seen in range(1, len(found) + 1)]
        return Feed(found, str(start + len(found)), cursors)

    async def history(self, job: str) -> list[Event]:
        row = self._find(job)
        return [] if row is None else row.events()

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        return [
            record
            for (of_kind, called), record in sorted(self._book.records.items())
            if of_kind == kind and name in (None, called)
        ]

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        offset = clock_jump(*self._times(None))
        return [None if (row := self._find(job)) is None else self._pack(row, offset) for job in jobs]

    def _pack(self, row: Row, offset: int) -> Moved:
        book = self._book
        keys = {key: book.keys[key].digest for key in book.keys_of_job.get(row.id, ())}
        return adopt.pack(self._with_result(row), keys, book.uniques.get(row.unique or ""), offset)

    async def cached(self, query: CacheQuery, *, now: datetime | None = None) -> CachePage:
        _, steady = self._times(now)
        entries = [one for one in self._book.entries.values() if one.counts and query.task in (None, one.task)]
        if query.flights:
            entries = [entry for entry in entries if entry.flight in query.flights]
        if query.results:
            return _page_of_results(entries, query)
        found = [entry for entry in entries if entry.is_usable(steady)]
        found.sort(key=lambda entry: (-entry.used, -entry.number))
        after = _parse(query.cursor)
        later = [one for one in found if after is None or (-one.used, -one.number) > (-after[0], -after[1])]
        page = later[: query.limit]
        cursor = f"{page[-1].used}:{page[-1].number}" if len(later) > len(page) else None
        return CachePage([entry_of(entry) for entry in page], cursor)

    async def uncache(self, request: Uncache, *, now: datetime | None = None) -> Uncached:
        return self._write(lambda tx: landings.uncache(tx, request), now)

    # -- keeping -------------------------------------------------------------------------------------------------------

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        return self._write(lambda tx: purge_chunk(tx, purge), now)

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        cleaned, by = [cleaned_moved(one) for one in moved], clean(by)
        return self._write(lambda tx: adopt.adopt(tx, cleaned, by), now)

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        records.check(puts)
        return self._write(lambda tx: records.put(tx, puts), now)

    def watch(self, topics: Iterable[str]) -> Watch:
        return self._hub.watch(topics)


def _page_of_results(entries: list[FlightEntry], query: CacheQuery) -> CachePage:
    after = 0 if query.cursor is None else _number(query.cursor)
    later = sorted((entry for entry in entries if entry.number > after), key=lambda entry: entry.number)
    page = later[: query.limit]
    cursor = str(page[-1].number) if len(later) > len(page) else None
    return CachePage([entry_of(entry, entry.result) for entry in page], cursor)


def _order_of(where: Filter):  # type: ignore[no-untyped-def]  # noqa: ANN202
    if where.states == {State.QUEUED}:
        return lambda row: tuple(row.rank)
    if where.states == {State.SCHEDULED}:
        return lambda row: (row.due or 0, row.seq)
    return lambda row: (-row.seq,)


def _parse(cursor: str | None) -> tuple[int, ...] | None:
    return None if cursor is None else tuple(_number(part) for part in cursor.split(":"))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a cursor of this store: pass the cursor of the previous page") from None

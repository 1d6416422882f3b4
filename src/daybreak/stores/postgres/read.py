"""Reads: pages, counts and positions. A filter that has an index reads only that index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import FINAL, UNFINISHED, Job, Record, State
from daybreak.core.units import clean, micros, moment, period
from daybreak.store.protocol import (
    POSITION_EXACT_TO,
    SCANNED_PER_CHUNK,
    SCANNED_PER_PAGE,
    Amend,
    CacheEntry,
    CachePage,
    CacheQuery,
    Filter,
    KnownKey,
    Moved,
    Page,
    Position,
    Query,
    Tally,
    Total,
    Usage,
)
from daybreak.stores.kernel import adopt
from daybreak.stores.kernel.row import Row
from daybreak.stores.postgres.arrays import Ints, Texts
from daybreak.stores.postgres.flight_tables import unpack_parts
from daybreak.stores.postgres.totals import to_totals
from daybreak.stores.postgres.transaction import PostgresTransaction

Key = tuple[int, ...]  # position of a job in a listing; its last number is the seq
T = TypeVar("T")
NEWEST = 1 << 62
BATCH_SIZE = 1000
HELD = frozenset({State.SUSPENDED, State.BLOCKED})
UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELLED})


def cached(tx: PostgresTransaction, query: CacheQuery, now: datetime | None) -> CachePage:
    """One page of known results."""
    if query.results:
        return _page_of_results(tx, query)
    used, number = parse_cursor(query.cursor, 2) if query.cursor else (NEWEST, NEWEST)
    given = {
        "now": tx.steady if now is None else micros(now), "used": used, "number": number, "limit": query.limit + 1,
        "task": None if query.task is None else clean(query.task),
        "flights": Texts([clean(flight) for flight in query.flights]),
    }  # fmt: skip
    if query.flights:
        statement = tx.sql.cached_flights_named
    else:
        statement = tx.sql.cached_flights if query.task is None else tx.sql.cached_flights_of_task
    found = tx.rows(statement, given)
    cursor = None
    if len(found) > query.limit:
        found = found[: query.limit]
        cursor = f"{found[-1][9]}:{found[-1][11]}"
    return CachePage([_cache_entry(row) for row in found], cursor)


def _page_of_results(tx: PostgresTransaction, query: CacheQuery) -> CachePage:
    given = {
        "task": None if query.task is None else clean(query.task), "limit": query.limit + 1,
        "after": parse_cursor(query.cursor, 1)[0] if query.cursor else 0,
        "flights": Texts([clean(flight) for flight in query.flights]) if query.flights else None,
    }  # fmt: skip
    found = tx.rows(tx.sql.cached_results, given)
    cursor = str(found[query.limit - 1][11]) if len(found) > query.limit else None
    return CachePage([_cache_entry(row) for row in found[: query.limit]], cursor)


def _cache_entry(row: Sequence[Any]) -> CacheEntry:
    flight, task, version, job, parts, size, ran, hits, created, used, until, _, *result = row
    return CacheEntry(
        flight=flight, task=task, version=version, job=job, parts=unpack_parts(parts), size=size, ran=period(ran),
        hits=hits, created_at=moment(created), used_at=moment(used), until=None if until is None else moment(until),
        result=result[0] if result else None,
    )  # fmt: skip


def get(tx: PostgresTransaction, jobs: Sequence[str]) -> list[Job | None]:
    ids = [clean(job) for job in jobs]
    rows = _rows_of(tx, ids)
    return [rows[job].as_job() if job in rows else None for job in ids]


def _rows_of(tx: PostgresTransaction, ids: Sequence[str]) -> dict[str, Row]:
    """The jobs with these ids, by id."""
    return {row.id: row for row in tx.peek_rows(list(tx.seqs_of(ids).values()))}


def find(tx: PostgresTransaction, query: Query) -> Page:
    """Most pages are full after the first, small batch of candidates; only then larger batches are read."""
    jobs: list[Job] = []
    last: Key = ()
    cursor, size, left = query.cursor, query.limit + 1, SCANNED_PER_PAGE
    while left:
        size = min(size, left)
        keys = _walk(tx, query.filter, cursor, size)
        rows = _by_seq(tx, [key[-1] for key in keys])
        for key in keys:
            row = rows.get(key[-1])
            if row is not None and row.matches(query.filter):
                if len(jobs) == query.limit:
                    return Page(jobs, _cursor(last))
                jobs.append(row.as_job())
            if len(jobs) < query.limit or jobs[-1].seq == key[-1]:
                last = key
        if len(keys) < size:
            return Page(jobs, None)
        cursor, size, left = _cursor(keys[-1]), BATCH_SIZE, left - size
    return Page(jobs, _cursor(last))


def _by_seq(tx: PostgresTransaction, seqs: Sequence[int]) -> dict[int, Row]:
    return {row.seq: row for row in tx.peek_rows(seqs)}


def _cursor(key: Key) -> str:
    return ":".join(map(str, key))


def in_batches(items: Sequence[T], first: int = 100) -> Iterator[Sequence[T]]:
    """A small batch first, then larger ones: most pages are full after the first."""
    start, size = 0, max(1, min(first, 1000))
    while start < len(items):
        yield items[start : start + size]
        start, size = start + size, 1000


def _walk(tx: PostgresTransaction, where: Filter, cursor: str | None, limit: int) -> list[Key]:
    """At most `limit` candidates of a filter after the cursor, in the order of its listing."""
    sql = tx.sql
    if where.states == {State.QUEUED}:
        after = parse_cursor(cursor, 3) if cursor else _start(tx, where)
        if not -(1 << 15) <= after[0] < 1 << 15:
            raise _bad_cursor(cursor or "")
        lanes = tx.lanes_of(where.queue, task=where.task)
        return tx.rows(sql.scan_ready, (Ints(lanes), *after, limit, limit))
    if where.states == {State.SCHEDULED}:
        after = parse_cursor(cursor, 2) if cursor else (-(1 << 62), -1)
        return tx.rows(sql.scan_delayed, (*after, limit, limit))
    before = parse_cursor(cursor, 1)[0] if cursor else NEWEST
    return [(seq,) for seq in newest_first(tx, where, before, limit)]


def _start(tx: PostgresTransaction, where: Filter) -> Key:
    """Where a listing of queued jobs begins. In a queue with the discipline `fifo`, the band is the priority, so the
    more urgent jobs, of which there may be very many, need not be read."""
    if where.priority is None or where.queue is None or tx.settings(where.queue).discipline != "fifo":
        return (-1, -(1 << 62), -1)
    return (where.priority - 1, NEWEST, NEWEST)


def newest_first(tx: PostgresTransaction, where: Filter, before: int, limit: int) -> list[int]:
    """The candidates of a filter below a seq, newest first, from the most selective index."""
    states, sql = where.states, tx.sql
    if where.key is None and states == {State.RUNNING}:  # there are never many
        return tx.seqs(sql.scan_lease, before, limit)
    if where.key is None and where.run is not None and states and states <= FINAL:
        return tx.seqs(sql.scan_run_final, where.run, Texts(sorted(states)), before, limit)
    indexed = (
        (where.key, sql.scan_key), (where.run, sql.scan_run), (where.owner, sql.scan_owner),
        (where.reason, sql.scan_reason),
    )  # fmt: skip
    for value, statement in indexed:
        if value is not None:
            return tx.seqs(statement, value, before, limit)
    if states and states <= HELD:
        return tx.seqs(sql.scan_held, before, limit)
    if states and states <= UNSUCCESSFUL:
        parts = [seq for state in states for seq in tx.seqs(sql.scan_unsuccessful, state.value, before, limit)]
        return sorted(parts, reverse=True)[:limit]
    unfinished = bool(states) and states <= UNFINISHED
    if where.queue is not None or where.task is not None:
        scan = sql.scan_lanes_unfinished if unfinished else sql.scan_lanes
        return tx.seqs(scan, Ints(tx.lanes_of(where.queue, task=where.task)), before, limit, limit)
    if unfinished:
        return tx.seqs(sql.scan_unfinished, before, limit)
    if states and states <= FINAL:
        return tx.seqs(sql.scan_done, before, limit)
    return tx.seqs(sql.scan_jobs, before, limit)


def count(tx: PostgresTransaction, where: Filter) -> list[Tally]:
    if where.reason is where.run is where.owner is where.key is where.tag is None:
        cells = {tuple(cell): n for *cell, n in tx.rows(tx.sql.all_tallies)}
    elif where.key is where.tag is None and (where.run is None) != (where.owner is None):
        sql, reason = tx.sql, where.reason
        statement, value = (sql.count_run, where.run) if where.owner is None else (sql.count_owner, where.owner)
        cells = {tuple(cell): n for *cell, n in tx.rows(statement, (value, reason, reason))}
    else:
        cells = _recount(tx, where)
    return sorted(
        Tally(queue, task, version, priority, State(state), n)
        for (queue, task, version, priority, state), n in cells.items()
        if (not where.states or state in where.states)
        and where.queue in (None, queue)
        and where.task in (None, task)
        and where.priority in (None, priority)
    )


def _recount(tx: PostgresTransaction, where: Filter) -> Counter[tuple[str, str, int, int, str]]:
    cells: Counter[tuple[str, str, int, int, str]] = Counter()
    before = NEWEST
    while seqs := newest_first(tx, where, before, 1000):
        for row in tx.peek_rows(seqs):
            if row.matches(where):
                cells[(*row.name, row.priority, row.state.value)] += 1
        before = seqs[-1]
    return cells


def totals(tx: PostgresTransaction, queue: str | None) -> list[Total]:
    return to_totals(tx.rows(tx.sql.all_totals, (None if queue is None else clean(queue),)))


def position(tx: PostgresTransaction, job: str) -> Position | None:
    row = _rows_of(tx, [clean(job)]).get(clean(job))
    if row is None or row.state not in (State.QUEUED, State.BLOCKED):
        return None
    lanes, limit = Ints(tx.lanes_of(row.queue)), POSITION_EXACT_TO + 1
    rank = (row.band, row.ord, row.seq)
    if row.state is State.QUEUED:
        ahead = tx.value(tx.sql.ahead_in_lanes, (lanes, *rank, limit, limit))
    else:
        ahead = tx.value(tx.sql.ahead_among_waiting, (lanes, row.cause, *rank, limit, limit))
    return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)


def usage(tx: PostgresTransaction, name: str | None) -> list[Usage]:
    found = tx.rows(tx.sql.all_usage, (None if name is None else clean(name),))
    return [
        Usage(name=resource, used=used, waiting=waiting, shut_until=moment(shut_until) if shut_until else None)
        for resource, used, waiting, shut_until in found
    ]


def known_keys(tx: PostgresTransaction, keys: Sequence[str], now: int | None) -> list[KnownKey | None]:
    cleaned = [clean(key).replace("\0", "") for key in keys]
    found = {
        key: KnownKey(job, digest, is_spent)
        for key, digest, job, is_spent in tx.rows(tx.sql.known_keys, (Texts(cleaned), now))
    }
    return [found.get(key) for key in cleaned]


def history(tx: PostgresTransaction, job: str) -> list[Event]:
    row = _rows_of(tx, [clean(job)]).get(clean(job))
    return row.events() if row else []


def records(tx: PostgresTransaction, kind: str, name: str | None) -> list[Record]:
    return [
        Record(kind=kind, name=record_name, value=value, revision=revision)
        for record_name, revision, value in tx.rows(tx.sql.all_records, (kind, name, name))
    ]


def find_chunk(tx: PostgresTransaction, request: Amend) -> tuple[list[int], str | None]:
    """Find the jobs of the next chunk of an amend, and the cursor after it. This happens before the write transaction,
    which then is short."""
    assert request.filter is not None
    # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
    before = parse_cursor(request.cursor, 1)[0] if request.cursor else NEWEST
    chunk: list[int] = []
    seqs = newest_first(tx, request.filter, before, SCANNED_PER_CHUNK)
    for batch in in_batches(seqs):
        rows = _by_seq(tx, batch)
        for seq in batch:
            if seq in rows and rows[seq].matches(request.filter):
                chunk.append(seq)
                if len(chunk) == request.limit:
                    return chunk, str(seq)
    return chunk, str(seqs[-1]) if len(seqs) == SCANNED_PER_CHUNK else None


def pack(tx: PostgresTransaction, jobs: Sequence[str]) -> list[Moved | None]:
    """Jobs for another store."""
    ids = [clean(job) for job in jobs]
    rows = _rows_of(tx, ids)
    keys: dict[str, dict[str, str]] = {}
    for job, key, digest in tx.rows(tx.sql.keys_of_jobs, (Texts(ids),)):
        keys.setdefault(job, {})[key] = digest
    names = [row.unique for row in rows.values() if row.unique is not None]
    holders = tx.read_holders(names) if names else {}
    offset = tx.wall - tx.steady
    return [
        adopt.pack(row, keys.get(job, {}), holders.get(row.unique or ""), offset) if (row := rows.get(job)) else None
        for job in ids
    ]


def parse_cursor(cursor: str, parts: int) -> Key:
    try:
        numbers = tuple(int(part) for part in cursor.split(":"))
    except ValueError:
        numbers = ()
    if len(numbers) != parts or any(abs(number) >= 1 << 63 for number in numbers):
        raise _bad_cursor(cursor)
    return numbers


def _bad_cursor(cursor: str) -> BadInput:
    return BadInput(f"{cursor!r} is not a cursor of this store: pass the cursor that the last page returned")

"""Reads: pages, counts, positions and events. A filter that has an index reads only that index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event, decode_lines
from daybreak.core.model import FINAL, UNFINISHED, Job, Record, State
from daybreak.core.units import clean, micros, moment, period
from daybreak.store.protocol import (
    LATEST,
    POSITION_EXACT_TO,
    SCANNED_PER_CHUNK,
    SCANNED_PER_PAGE,
    Amend,
    CacheEntry,
    CachePage,
    CacheQuery,
    Feed,
    Filter,
    KnownKey,
    Moved,
    Page,
    Position,
    Query,
    Tally,
    Total,
    Usage,
    clock_jump,
)
from daybreak.stores.kernel import adopt
from daybreak.stores.kernel.row import STEADY, WALL, Row
from daybreak.stores.sqlite.flight_tables import unpack_parts
from daybreak.stores.sqlite.rows import unpack_totals
from daybreak.stores.sqlite.statements import sql
from daybreak.stores.sqlite.transaction import SqliteTransaction

Key = tuple[int, ...]  # the sort key of a job in a listing; its last number is the seq
NEWEST = (1 << 62,)
HELD = frozenset({State.SUSPENDED, State.BLOCKED})
UNHAPPY = frozenset({State.FAILED, State.CANCELLED})


def get(tx: SqliteTransaction, jobs: Sequence[str]) -> list[Job | None]:
    """The jobs with these ids."""
    rows = [tx.load_id(clean(job)) for job in jobs]
    return [row.as_job() if row else None for row in rows]


def find(tx: SqliteTransaction, query: Query) -> Page:
    """One page of a listing."""
    jobs: list[Job] = []
    last: Key = ()
    keys = _walk(tx, query.filter, query.cursor)
    for scanned, (key, row) in enumerate(_with_rows(tx, keys), 1):
        if row is not None and row.matches(query.filter):
            if len(jobs) == query.limit:
                break
            jobs.append(row.as_job())
        if len(jobs) < query.limit or (jobs and jobs[-1].seq == key[-1]):
            last = key
        if scanned == SCANNED_PER_PAGE:
            break
    else:
        return Page(jobs, None)
    return Page(jobs, ":".join(map(str, last)))


def find_chunk(tx: SqliteTransaction, request: Amend) -> tuple[list[int], str | None]:
    """The jobs of the next chunk of a change to many. The reader does this, so that no writer waits for a long
    search."""
    assert request.filter is not None
    # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
    before = parse_cursor(request.cursor, 1) if request.cursor else NEWEST
    chunk: list[int] = []
    keys = _newest_first(tx, request.filter, before)
    for scanned, ((seq,), row) in enumerate(_with_rows(tx, keys), 1):
        if row is not None and row.matches(request.filter):
            chunk.append(seq)
        if len(chunk) == request.limit or scanned == SCANNED_PER_CHUNK:
            return chunk, str(seq)
    return chunk, None


def pack(tx: SqliteTransaction, jobs: Sequence[str]) -> list[Moved | None]:
    """Jobs for another store."""
    return [_pack(tx, clean(job)) for job in jobs]


def _pack(tx: SqliteTransaction, job: str) -> Moved | None:
    if (row := tx.load_id(job)) is None:
        return None
    holder = None if row.unique is None else tx.read_holders([row.unique]).get(row.unique)
    return adopt.pack(row, dict(tx.execute(sql.keys_of_job, (job,))), holder, clock_jump(tx.wall, tx.steady))


def _with_rows(tx: SqliteTransaction, keys: Iterator[Key]) -> Iterator[tuple[Key, Row | None]]:
    """Each candidate with its job, read in batches of 4, 8, 16, ... up to 64."""
    size = 4
    while batch := list(islice(keys, size)):
        rows = {row.seq: row for row in tx.peek_rows([key[-1] for key in batch])}
        for key in batch:
            yield key, rows.get(key[-1])
        size = min(2 * size, 64)


def _walk(tx: SqliteTransaction, where: Filter, cursor: str | None) -> Iterator[Key]:
    """The candidates for a filter after the cursor, in the order of the listing."""
    if where.states == {State.QUEUED}:
        after = parse_cursor(cursor, 3) if cursor else _start(tx, where)
        lanes = _lanes(tx, where)
        return merge(*(_rows(tx, sql.scan_ready, (lane, *after, -1)) for lane in lanes))
    if where.states == {State.SCHEDULED}:
        after = parse_cursor(cursor, 2) if cursor else (-(1 << 62), -1)
        return merge(*(_rows(tx, sql.scan_delayed, (clock, *after, -1)) for clock in (STEADY, WALL)))
    before = parse_cursor(cursor, 1) if cursor else NEWEST
    return _newest_first(tx, where, before)


def _start(tx: SqliteTransaction, where: Filter) -> Key:
    """Where a listing of queued jobs begins. In a queue with the discipline `fifo`, the band is the priority, so the
    more urgent jobs, of which there may be very many, need not be read."""
    if where.priority is None or where.queue is None or tx.settings(where.queue).discipline != "fifo":
        return (-1, -(1 << 62), -1)
    return (where.priority - 1, 1 << 62, 1 << 62)


def _newest_first(tx: SqliteTransaction, where: Filter, before: Key) -> Iterator[Key]:
    states = where.states
    if where.key is not None:
        return _rows(tx, sql.scan_key, (where.key, *before, -1))
    if states == {State.RUNNING}:  # there are never many
        return _rows(tx, sql.scan_lease, (*before, -1))
    if where.run is not None and states and states <= FINAL:
        return _rows(tx, sql.scan_run_final, (where.run, " ".join(sorted(states)), *before, -1))
    if where.run is not None:
        return _rows(tx, sql.scan_run, (where.run, *before, -1))
    if where.owner is not None:
        return _rows(tx, sql.scan_owner, (where.owner, *before, -1))
    if where.reason is not None:
        return _rows(tx, sql.scan_reason, (where.reason, *before, -1))
    if states and states <= HELD:
        return _rows(tx, sql.scan_held, (*before, -1))
    if states and states <= UNHAPPY:
        parts = (_rows(tx, sql.scan_unhappy, (state.value, *before, -1)) for state in states)
        return merge(*parts, reverse=True)
    unfinished = bool(states) and states <= UNFINISHED
    if where.queue is not None or where.task is not None:
        scan = sql.scan_lane_unfinished if unfinished else sql.scan_lane
        return merge(*(_rows(tx, scan, (lane, *before, -1)) for lane in _lanes(tx, where)), reverse=True)
    if unfinished:
        return _rows(tx, sql.scan_unfinished, (*before, -1))
    if states and states <= FINAL:
        return _rows(tx, sql.scan_done, (*before, -1))
    return _rows(tx, sql.scan_jobs, (*before, -1))


def _rows(tx: SqliteTransaction, statement: str, bindings: tuple[Any, ...]) -> Iterator[Key]:
    return iter(tx.execute(statement, bindings))


def _lanes(tx: SqliteTransaction, where: Filter) -> list[int]:
    tx.load_lanes()
    return [
        lane
        for lane, (queue, task, _) in tx.cache.names.items()
        if where.queue in (None, queue) and where.task in (None, task)
    ]


def count(tx: SqliteTransaction, where: Filter) -> list[Tally]:
    tx.load_lanes()
    names = tx.cache.names
    tallied = where.reason is where.run is where.owner is where.key is where.tag is None
    if tallied:
        cells: dict[tuple[int, int, str], int] = {
            (lane, priority, state): n for lane, priority, state, n in tx.execute(sql.all_tallies)
        }
    elif where.key is where.tag is None and (where.run is None) != (where.owner is None):
        statement, value = (sql.count_run, where.run) if where.owner is None else (sql.count_owner, where.owner)
        found = tx.execute(statement, (clean(value or ""), where.reason))
        cells = {(lane, priority, state): n for lane, priority, state, n in found}
    else:
        rows = (row for _, row in _with_rows(tx, _newest_first(tx, where, NEWEST)))
        cells = Counter(
            (tx.lane(row.name), row.priority, row.state.value) for row in rows if row and row.matches(where)
        )
    return sorted(
        Tally(*names[lane], priority, State(state), n)
        for (lane, priority, state), n in cells.items()
        if (not where.states or state in where.states)
        and where.queue in (None, names[lane][0])
        and where.task in (None, names[lane][1])
        and where.priority in (None, priority)
    )


def totals(tx: SqliteTransaction, of_queue: str | None) -> list[Total]:
    return sorted(
        Total(queue, task, version, priority, what, n, took)
        for queue, task, version, priority, packed in tx.execute(sql.all_totals, (of_queue,))
        for what, (n, took) in unpack_totals(packed).items()
    )


def position(tx: SqliteTransaction, job: str) -> Position | None:
    row = tx.load_id(clean(job))
    if row is None or row.state not in (State.QUEUED, State.BLOCKED):
        return None
    ahead = 0
    for lane in tx.lanes_of(row.queue, None):
        place = (lane, row.band, row.ord, row.seq, POSITION_EXACT_TO + 1 - ahead)
        if row.state is State.QUEUED:
            ahead += tx.value(sql.ahead_in_lane, place)
        else:
            ahead += tx.value(sql.ahead_among_waiting, (row.cause, *place))
    return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)


def usage(tx: SqliteTransaction, name: str | None) -> list[Usage]:
    return [
        Usage(name=called, used=used, waiting=waiting, shut_until=moment(shut_until) if shut_until else None)
        for called, used, waiting, shut_until in tx.all(sql.all_usage, (name,))
    ]


def known_keys(tx: SqliteTransaction, keys: Sequence[str], now: datetime | None) -> list[KnownKey | None]:
    at = tx.steady if now is None else micros(now)
    cleaned = [clean(key) for key in keys]
    entries = tx.read_keys(cleaned)
    known = (entries.get(key) for key in cleaned)
    return [
        None if entry is None or entry.is_free(at) else KnownKey(entry.job, entry.digest, entry.seq is None)
        for entry in known
    ]


def cached(tx: SqliteTransaction, query: CacheQuery, now: datetime | None) -> CachePage:
    """One page of known results."""
    if query.results:
        return _page_of_results(tx, query)
    at = tx.steady if now is None else micros(now)
    after = parse_cursor(query.cursor, 2) if query.cursor else (1 << 62, 1 << 62)
    given = (at, None if query.task is None else clean(query.task), *after, query.limit + 1)
    if query.flights:
        named = msgspec.json.encode([clean(flight) for flight in query.flights]).decode()
        found = tx.all(sql.cached_flights_named, (*given, named))
    else:
        found = tx.all(sql.cached_flights if query.task is None else sql.cached_flights_of_task, given)
    cursor = None
    if len(found) > query.limit:
        found = found[: query.limit]
        cursor = f"{found[-1][9]}:{found[-1][11]}"
    return CachePage([_cache_entry(row) for row in found], cursor)


def _page_of_results(tx: SqliteTransaction, query: CacheQuery) -> CachePage:
    after = parse_cursor(query.cursor, 1)[0] if query.cursor else 0
    task = None if query.task is None else clean(query.task)
    named = msgspec.json.encode([clean(flight) for flight in query.flights]).decode() if query.flights else None
    found = tx.all(sql.cached_results, (task, after, named, query.limit + 1))
    cursor = str(found[query.limit - 1][11]) if len(found) > query.limit else None
    return CachePage([_cache_entry(row) for row in found[: query.limit]], cursor)


def _cache_entry(row: tuple[Any, ...]) -> CacheEntry:
    flight, task, version, job, parts, size, ran, hits, created, used, until, _, *result = row
    return CacheEntry(
        flight=flight, task=task, version=version, job=job, parts=unpack_parts(parts), size=size, ran=period(ran),
        hits=hits, created_at=moment(created), used_at=moment(used), until=None if until is None else moment(until),
        result=result[0] if result else None,
    )  # fmt: skip


def records(tx: SqliteTransaction, kind: str, name: str | None) -> list[Record]:
    """Records of a kind."""
    return [
        Record(kind=kind, name=called, value=value, revision=revision)
        for called, revision, value in tx.execute(sql.all_records, (kind, name))
    ]


def history(tx: SqliteTransaction, job: str) -> list[Event]:
    row = tx.load_id(clean(job))
    return row.events() if row else []


def events(tx: SqliteTransaction, after: str | None, limit: int) -> Feed:
    """A page of the feed. A cursor is the next row and how many of its events were read."""
    last = tx.value(sql.last_pos)
    if after == LATEST:
        return Feed([], f"{last + 1}:0")
    first = tx.value(sql.first_pos) or last + 1
    pos, seen = (first, 0) if after is None else parse_cursor(after, 2)
    if not first <= pos <= last + 1:
        raise CursorExpired(str(after))
    found: list[Event] = []
    cursors: list[str] = []
    for row_pos, lines in tx.execute(sql.feed_from, (pos,)):
        row = decode_lines(lines)
        start = seen if row_pos == pos else 0
        taken = row[start : start + limit - len(found)]
        found += taken
        cursors += [f"{row_pos}:{start + seen}" for seen in range(1, len(taken) + 1)]
        if start + len(taken) < len(row):
            return Feed(found, f"{row_pos}:{start + len(taken)}", cursors)
        if taken:
            cursors[-1] = f"{row_pos + 1}:0"
        if len(found) == limit:
            return Feed(found, f"{row_pos + 1}:0", cursors)
    return Feed(found, f"{last + 1}:0", cursors)


def parse_cursor(cursor: str, parts: int) -> Key:
    try:
        numbers = tuple(int(part) for part in cursor.split(":"))
    except ValueError:
        numbers = ()
    if len(numbers) != parts or any(abs(number) >= 1 << 63 for number in numbers):
        raise BadInput(f"{cursor!r} is not a cursor of this store: pass the cursor of the previous page")
    return numbers

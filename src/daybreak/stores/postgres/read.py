"""Reads: pages, counts and positions. A filter that has an index reads only that index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import FINAL, UNFINISHED, Job, State
from daybreak.core.units import clean, moment
from daybreak.store.protocol import (
    POSITION_EXACT_TO,
    SCANNED_PER_PAGE,
    Filter,
    KnownKey,
    Page,
    Position,
    Query,
    Tally,
    Total,
    Usage,
)
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Ints, Texts
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row
from daybreak.stores.postgres.totals import to_totals

Key = tuple[int, ...]  # position of a job in a listing; its last number is the seq
T = TypeVar("T")
NEWEST = 1 << 62
BATCH_SIZE = 1000
HELD = frozenset({State.SUSPENDED, State.BLOCKED})
UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELLED})


def get(ledger: Ledger, jobs: Sequence[str]) -> list[Job | None]:
    ids = [clean(job) for job in jobs]
    seqs = dict(ledger.rows(ledger.sql.seqs_of_ids, (Texts(ids),)))
    rows = job_moves.read_rows(ledger, list(seqs.values())) if seqs else {}
    return [rows[seq].as_job() if (seq := seqs.get(job)) in rows else None for job in ids]


def find(ledger: Ledger, query: Query) -> Page:
    """Most pages are full after the first, small batch of candidates; only then larger batches are read."""
    jobs: list[Job] = []
    last: Key = ()
    cursor, size, left = query.cursor, query.limit + 1, SCANNED_PER_PAGE
    while left:
        size = min(size, left)
        keys = _walk(ledger, query.filter, cursor, size)
        rows = job_moves.read_rows(ledger, [key[-1] for key in keys])
        for key in keys:
            row = rows.get(key[-1])
            if row is not None and matches(row, query.filter):
                if len(jobs) == query.limit:
                    return Page(jobs, _cursor(last))
                jobs.append(row.as_job())
            if len(jobs) < query.limit or jobs[-1].seq == key[-1]:
                last = key
        if len(keys) < size:
            return Page(jobs, None)
        cursor, size, left = _cursor(keys[-1]), BATCH_SIZE, left - size
    return Page(jobs, _cursor(last))


def _cursor(key: Key) -> str:
    return ":".join(map(str, key))


def in_batches(items: Sequence[T], first: int = 100) -> Iterator[Sequence[T]]:
    """A small batch first, then larger ones: most pages are full after the first."""
    start, size = 0, max(1, min(first, 1000))
    while start < len(items):
        yield items[start : start + size]
        start, size = start + size, 1000


def _walk(ledger: Ledger, where: Filter, cursor: str | None, limit: int) -> list[Key]:
    """At most `limit` candidates of a filter after the cursor, in the order of its listing."""
    sql = ledger.sql
    if where.states == {State.QUEUED}:
        after = parse_cursor(cursor, 3) if cursor else _start(ledger, where)
        if not -(1 << 15) <= after[0] < 1 << 15:
            raise _bad_cursor(cursor or "")
        lanes = ledger.lanes_of(where.queue, task=where.task)
        return ledger.rows(sql.scan_ready, (Ints(lanes), *after, limit, limit))
    if where.states == {State.SCHEDULED}:
        after = parse_cursor(cursor, 2) if cursor else (-(1 << 62), -1)
        return ledger.rows(sql.scan_delayed, (*after, limit, limit))
    before = parse_cursor(cursor, 1)[0] if cursor else NEWEST
    return [(seq,) for seq in newest_first(ledger, where, before, limit)]


def _start(ledger: Ledger, where: Filter) -> Key:
    """Where a listing of queued jobs begins. In a queue with the discipline `fifo`, the band is the priority, so the
    more urgent jobs, of which there may be very many, need not be read."""
    if where.priority is None or where.queue is None or ledger.settings(where.queue).discipline != "fifo":
        return (-1, -(1 << 62), -1)
    return (where.priority - 1, NEWEST, NEWEST)


def newest_first(ledger: Ledger, where: Filter, before: int, limit: int) -> list[int]:
    """The candidates of a filter below a seq, newest first, from the most selective index."""
    states, sql = where.states, ledger.sql
    if where.key is None and states == {State.RUNNING}:  # there are never many
        return _seqs(ledger, sql.scan_lease, before, limit)
    if where.key is None and where.run is not None and states and states <= FINAL:
        return _seqs(ledger, sql.scan_run_final, where.run, Texts(sorted(states)), before, limit)
    indexed = (
        (where.key, sql.scan_key), (where.run, sql.scan_run), (where.owner, sql.scan_owner),
        (where.reason, sql.scan_reason),
    )  # fmt: skip
    for value, statement in indexed:
        if value is not None:
            return _seqs(ledger, statement, value, before, limit)
    if states and states <= HELD:
        return _seqs(ledger, sql.scan_held, before, limit)
    if states and states <= UNSUCCESSFUL:
        parts = [seq for state in states for seq in _seqs(ledger, sql.scan_unsuccessful, state.value, before, limit)]
        return sorted(parts, reverse=True)[:limit]
    unfinished = bool(states) and states <= UNFINISHED
    if where.queue is not None or where.task is not None:
        scan = sql.scan_lanes_unfinished if unfinished else sql.scan_lanes
        return _seqs(ledger, scan, Ints(ledger.lanes_of(where.queue, task=where.task)), before, limit, limit)
    if unfinished:
        return _seqs(ledger, sql.scan_unfinished, before, limit)
    if states and states <= FINAL:
        return _seqs(ledger, sql.scan_done, before, limit)
    return _seqs(ledger, sql.scan_jobs, before, limit)


def _seqs(ledger: Ledger, statement: str, *params: object) -> list[int]:
    return [seq for (seq,) in ledger.rows(statement, params)]


def matches(row: Row, where: Filter) -> bool:
    return (
        (not where.states or row.state in where.states)
        and where.reason in (None, row.reason)
        and where.queue in (None, row.name[0])
        and where.task in (None, row.name[1])
        and where.run in (None, row.run)
        and where.owner in (None, row.owner)
        and where.key in (None, row.key)
        and where.priority in (None, row.priority)
        and (where.tag is None or where.tag in row.spec.tags)
    )


def count(ledger: Ledger, where: Filter) -> list[Tally]:
    if where.reason is where.run is where.owner is where.key is where.tag is None:
        cells = {tuple(cell): n for *cell, n in ledger.rows(ledger.sql.all_tallies)}
    elif where.key is where.tag is None and (where.run is None) != (where.owner is None):
        sql, reason = ledger.sql, where.reason
        statement, value = (sql.count_run, where.run) if where.owner is None else (sql.count_owner, where.owner)
        cells = {tuple(cell): n for *cell, n in ledger.rows(statement, (value, reason, reason))}
    else:
        cells = _recount(ledger, where)
    return sorted(
        Tally(queue, task, version, priority, State(state), n)
        for (queue, task, version, priority, state), n in cells.items()
        if (not where.states or state in where.states)
        and where.queue in (None, queue)
        and where.task in (None, task)
        and where.priority in (None, priority)
    )


def _recount(ledger: Ledger, where: Filter) -> Counter[tuple[str, str, int, int, str]]:
    cells: Counter[tuple[str, str, int, int, str]] = Counter()
    before = NEWEST
    while seqs := newest_first(ledger, where, before, 1000):
        for row in job_moves.read_rows(ledger, seqs).values():
            if matches(row, where):
                cells[(*row.name, row.priority, row.state.value)] += 1
        before = seqs[-1]
    return cells


def totals(ledger: Ledger, queue: str | None) -> list[Total]:
    return to_totals(ledger.rows(ledger.sql.all_totals, (None if queue is None else clean(queue),)))


def position(ledger: Ledger, job: str) -> Position | None:
    seq = ledger.value(ledger.sql.seq_of_id, (clean(job),))
    row = None if seq is None else job_moves.read_rows(ledger, [seq]).get(seq)
    if row is None or row.state not in (State.QUEUED, State.BLOCKED):
        return None
    lanes, limit = Ints(ledger.lanes_of(row.queue)), POSITION_EXACT_TO + 1
    rank = (row.band, row.ord, row.seq)
    if row.state is State.QUEUED:
        ahead = ledger.value(ledger.sql.ahead_in_lanes, (lanes, *rank, limit, limit))
    else:
        ahead = ledger.value(ledger.sql.ahead_among_waiting, (lanes, row.cause, *rank, limit, limit))
    return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)


def usage(ledger: Ledger, name: str | None) -> list[Usage]:
    found = ledger.rows(ledger.sql.all_usage, (None if name is None else clean(name),))
    return [
        Usage(name=resource, used=used, waiting=waiting, shut_until=moment(shut_until) if shut_until else None)
        for resource, used, waiting, shut_until in found
    ]


def known_keys(ledger: Ledger, keys: Sequence[str], now: int | None) -> list[KnownKey | None]:
    cleaned = [clean(key).replace("\0", "") for key in keys]
    found = {
        key: KnownKey(job, digest, is_spent)
        for key, digest, job, is_spent in ledger.rows(ledger.sql.known_keys, (Texts(cleaned), now))
    }
    return [found.get(key) for key in cleaned]


def history(ledger: Ledger, job: str) -> list[Event]:
    seq = ledger.value(ledger.sql.seq_of_id, (clean(job),))
    row = None if seq is None else job_moves.read_rows(ledger, [seq]).get(seq)
    return row.events() if row else []


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

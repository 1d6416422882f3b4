"""Reads: pages, counts, positions and events. A filter that has an index reads only that index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from typing import Any

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event, decode_lines
from daybreak.core.model import FINAL, UNFINISHED, Job, State
from daybreak.core.units import clean, micros, moment
from daybreak.store.protocol import (
    LATEST,
    POSITION_EXACT_TO,
    SCANNED_PER_PAGE,
    Feed,
    Filter,
    KnownKey,
    Page,
    Position,
    Query,
    Tally,
    Total,
    Usage,
)
from daybreak.stores.sqlite import job_moves
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import STEADY, WALL, Row, unpack_totals
from daybreak.stores.sqlite.statements import sql

Key = tuple[int, ...]  # the sort key of a job in a listing; its last number is the seq
NEWEST = (1 << 62,)
HELD = frozenset({State.SUSPENDED, State.BLOCKED})
UNHAPPY = frozenset({State.FAILED, State.CANCELLED})


def get(ledger: Ledger, jobs: list[str]) -> list[Job | None]:
    rows = [job_moves.load_id(ledger, clean(job)) for job in jobs]
    return [row.as_job() if row else None for row in rows]


def find(ledger: Ledger, query: Query) -> Page:
    jobs: list[Job] = []
    last: Key = ()
    keys = _walk(ledger, query.filter, query.cursor)
    for scanned, key in enumerate(keys, 1):
        row = job_moves.load(ledger, key[-1])
        if row is not None and matches(row, query.filter):
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


def _walk(ledger: Ledger, where: Filter, cursor: str | None) -> Iterator[Key]:
    """The candidates for a filter after the cursor, in the order of the listing."""
    if where.states == {State.QUEUED}:
        after = parse_cursor(cursor, 3) if cursor else _start(ledger, where)
        lanes = _lanes(ledger, where)
        return merge(*(_rows(ledger, sql.scan_ready, (lane, *after, -1)) for lane in lanes))
    if where.states == {State.SCHEDULED}:
        after = parse_cursor(cursor, 2) if cursor else (-(1 << 62), -1)
        return merge(*(_rows(ledger, sql.scan_delayed, (clock, *after, -1)) for clock in (STEADY, WALL)))
    before = parse_cursor(cursor, 1) if cursor else NEWEST
    return newest_first(ledger, where, before)


def _start(ledger: Ledger, where: Filter) -> Key:
    """Where a listing of queued jobs begins. In a queue with the discipline `fifo`, the band is the priority, so the
    more urgent jobs, of which there may be very many, need not be read."""
    if where.priority is None or where.queue is None or ledger.settings(where.queue).discipline != "fifo":
        return (-1, -(1 << 62), -1)
    return (where.priority - 1, 1 << 62, 1 << 62)


def newest_first(ledger: Ledger, where: Filter, before: Key) -> Iterator[Key]:
    states = where.states
    if where.key is not None:
        return _rows(ledger, sql.scan_key, (where.key, *before, -1))
    if states == {State.RUNNING}:  # there are never many
        return _rows(ledger, sql.scan_lease, (*before, -1))
    if where.run is not None and states and states <= FINAL:
        return _rows(ledger, sql.scan_run_final, (where.run, " ".join(sorted(states)), *before, -1))
    if where.run is not None:
        return _rows(ledger, sql.scan_run, (where.run, *before, -1))
    if where.owner is not None:
        return _rows(ledger, sql.scan_owner, (where.owner, *before, -1))
    if where.reason is not None:
        return _rows(ledger, sql.scan_reason, (where.reason, *before, -1))
    if states and states <= HELD:
        return _rows(ledger, sql.scan_held, (*before, -1))
    if states and states <= UNHAPPY:
        parts = (_rows(ledger, sql.scan_unhappy, (state.value, *before, -1)) for state in states)
        return merge(*parts, reverse=True)
    unfinished = bool(states) and states <= UNFINISHED
    if where.queue is not None or where.task is not None:
        scan = sql.scan_lane_unfinished if unfinished else sql.scan_lane
        return merge(*(_rows(ledger, scan, (lane, *before, -1)) for lane in _lanes(ledger, where)), reverse=True)
    if unfinished:
        return _rows(ledger, sql.scan_unfinished, (*before, -1))
    if states and states <= FINAL:
        return _rows(ledger, sql.scan_done, (*before, -1))
    return _rows(ledger, sql.scan_jobs, (*before, -1))


def _rows(ledger: Ledger, statement: str, bindings: tuple[Any, ...]) -> Iterator[Key]:
    return iter(ledger.execute(statement, bindings))


def _lanes(ledger: Ledger, where: Filter) -> list[int]:
    ledger.lanes_of("", None)  # loads the lanes
    return [
        lane
        for lane, (queue, task, _) in ledger.known.names.items()
        if where.queue in (None, queue) and where.task in (None, task)
    ]


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
    ledger.lanes_of("", None)
    names = ledger.known.names
    tallied = where.reason is where.run is where.owner is where.key is where.tag is None
    if tallied:
        cells: dict[tuple[int, int, str], int] = {
            (lane, priority, state): n for lane, priority, state, n in ledger.execute(sql.all_tallies)
        }
    elif where.key is where.tag is None and (where.run is None) != (where.owner is None):
        statement, value = (sql.count_run, where.run) if where.owner is None else (sql.count_owner, where.owner)
        found = ledger.execute(statement, (clean(value or ""), where.reason))
        cells = {(lane, priority, state): n for lane, priority, state, n in found}
    else:
        rows = (job_moves.load(ledger, key[-1]) for key in newest_first(ledger, where, NEWEST))
        cells = Counter((row.lane, row.priority, row.state.value) for row in rows if row and matches(row, where))
    return sorted(
        Tally(*names[lane], priority, State(state), n)
        for (lane, priority, state), n in cells.items()
        if (not where.states or state in where.states)
        and where.queue in (None, names[lane][0])
        and where.task in (None, names[lane][1])
        and where.priority in (None, priority)
    )


def totals(ledger: Ledger, of_queue: str | None) -> list[Total]:
    return sorted(
        Total(queue, task, version, priority, what, n, took)
        for queue, task, version, priority, packed in ledger.execute(sql.all_totals, (of_queue,))
        for what, (n, took) in unpack_totals(packed).items()
    )


def position(ledger: Ledger, job: str) -> Position | None:
    row = job_moves.load_id(ledger, clean(job))
    if row is None or row.state not in (State.QUEUED, State.BLOCKED):
        return None
    ahead = 0
    for lane in ledger.lanes_of(row.queue, None):
        place = (lane, row.band, row.ord, row.seq, POSITION_EXACT_TO + 1 - ahead)
        if row.state is State.QUEUED:
            ahead += ledger.value(sql.ahead_in_lane, place)
        else:
            ahead += ledger.value(sql.ahead_among_waiting, (row.cause, *place))
    return Position(min(ahead, POSITION_EXACT_TO), ahead <= POSITION_EXACT_TO)


def usage(ledger: Ledger, name: str | None) -> list[Usage]:
    return [
        Usage(name=called, used=used, waiting=waiting, shut_until=moment(shut_until) if shut_until else None)
        for called, used, waiting, shut_until in ledger.rows(sql.all_usage, (name,))
    ]


def known_keys(ledger: Ledger, keys: Sequence[str], now: datetime | None) -> list[KnownKey | None]:
    at = ledger.steady if now is None else micros(now)
    answers: list[KnownKey | None] = []
    for key in keys:
        found = ledger.execute(sql.key_of, (clean(key),)).fetchone()
        if found is None or (found[2] is None and (found[3] is None or found[3] <= at)):
            answers.append(None)
        else:
            digest, job, seq, _ = found
            answers.append(KnownKey(job, digest, seq is None))
    return answers


def history(ledger: Ledger, job: str) -> list[Event]:
    row = job_moves.load_id(ledger, clean(job))
    return row.events() if row else []


def events(ledger: Ledger, after: str | None, limit: int) -> Feed:
    """A page of the feed. A cursor is the next row and how many of its events were read."""
    last = ledger.value(sql.last_pos)
    if after == LATEST:
        return Feed([], f"{last + 1}:0")
    first = ledger.value(sql.first_pos) or last + 1
    pos, seen = (first, 0) if after is None else parse_cursor(after, 2)
    if not first <= pos <= last + 1:
        raise CursorExpired(str(after))
    found: list[Event] = []
    cursors: list[str] = []
    for row_pos, lines in ledger.execute(sql.feed_from, (pos,)):
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

"""Reads: pages, counts and events. Listings are read in batches, from as few sets as the filter allows."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Final, Literal

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event
from daybreak.core.model import Job, State
from daybreak.core.units import clean
from daybreak.store.protocol import (
    LATEST,
    SCANNED_PER_CHUNK,
    SCANNED_PER_PAGE,
    Amend,
    Feed,
    Filter,
    Page,
    Query,
    Tally,
    Total,
)
from daybreak.stores.redis import codes, scripts
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.event_codec import unpack_names, unpack_row
from daybreak.stores.redis.requests import filter_args, seq_of
from daybreak.stores.redis.rows import StoredJob
from daybreak.stores.redis.specs import Args

BATCH_SIZE: Final = 250
MAX_BATCH_SIZE: Final = 2000
COUNTED_AT_ONCE: Final = 10_000
_TOTAL: Final = struct.Struct("<2d")
_ATTEMPTS: Final = struct.Struct("<7d")  # as in settle.lua
HELD: Final = {State.SUSPENDED: "held", State.BLOCKED: "blocked"}
UNSUCCESSFUL: Final = frozenset({State.FAILED, State.CANCELLED})
LaneName = tuple[str, str, int]
Cell = tuple[str, str, int, int, State]
Found = tuple[str, StoredJob]  # the job's position in the listing, and the job


async def lanes(
    client: RedisClient, counted: Literal["tally", "total"]
) -> tuple[dict[int, LaneName], dict[bytes, bytes]]:
    """All lanes by number, and their counts."""
    _, named, counts = await client.run(scripts.LANES, (counted,))
    names = {int(number): _lane(name) for number, name in zip(named[::2], named[1::2], strict=True)}
    return names, dict(zip(counts[::2], counts[1::2], strict=True))


def _lane(packed: bytes) -> LaneName:
    size = int.from_bytes(packed[:2], "little")
    task, _, version = packed[2 + size :].decode().rpartition("\0")
    return packed[2 : 2 + size].decode(), task, int(version)


# -- pages -------------------------------------------------------------------------------------------------------------


class Listing:
    """The candidates of a filter, in the order of its listing."""

    def __init__(self, client: RedisClient, where: Filter, *, newest_first: bool = False) -> None:
        self._client = client
        self._where = where
        self.descending = newest_first or where.states not in ({State.QUEUED}, {State.SCHEDULED})
        self.scanned = 0
        self.last = ""

    async def sets(self) -> list[str]:
        where, states = self._where, self._where.states
        if not self.descending and states == {State.SCHEDULED}:
            return ["due:steady", "due:wall"]
        if self.descending:
            if states == {State.RUNNING}:  # there are never many
                return ["lease"]
            if where.run is not None:
                return [f"run:{where.run}"]
            if where.owner is not None:
                return [f"owner:{where.owner}"]
            if states and states <= HELD.keys():
                return sorted(HELD[state] for state in states)
            if states and states <= UNSUCCESSFUL:
                return sorted(states)
            if where.reason is not None:
                return ["failed"]
        names, _ = await lanes(self._client, "tally")
        kind = "all" if self.descending else "queued"
        return [
            f"{kind}:{number}"
            for number, (queue, task, _) in names.items()
            if where.queue in (None, queue) and where.task in (None, task)
        ]

    async def walk(self, cursor: str | None, limit: int, *, batch_size: int = BATCH_SIZE) -> AsyncIterator[Found]:
        """The matching jobs after the cursor. Examines at most `limit` jobs; `last` is the position of the last one."""
        where, sets = self._where, await self.sets()
        score, seq = parse_cursor(cursor, 2) if cursor else ("", "")
        while self.scanned < limit:
            size = min(batch_size, limit - self.scanned)
            args: Args = [int(self.descending), score, seq, *filter_args(where), size, len(sets), *sets]
            _, examined, last_score, last_seq, found = await self._client.run(scripts.SCAN, args)
            for at, parts in found:
                stored = StoredJob(parts)
                if matches(stored, where):
                    yield f"{at.decode()}:{parts[0].decode()}", stored
            self.scanned += examined
            if examined < size:
                return
            if len(found) < size / 4:  # few of them match: look at more in one round trip
                batch_size = min(2 * batch_size, MAX_BATCH_SIZE)
            score, seq = last_score.decode(), last_seq.decode()
            self.last = f"{score}:{seq}"


def matches(stored: StoredJob, where: Filter) -> bool:
    """The part of the filter that the script does not apply: it checks only state, reason and priority."""
    spec = stored.spec
    return (
        where.queue in (None, spec.queue)
        and where.task in (None, spec.task)
        and where.run in (None, spec.run)
        and where.owner in (None, spec.owner)
        and where.key in (None, spec.key)
        and (where.tag is None or where.tag in spec.tags)
    )


async def find_by_key(client: RedisClient, where: Filter) -> list[StoredJob]:
    """The job of a key; at most one."""
    packed = await client.command("HGET", client.prefix + b"key", clean(where.key or ""))
    if not isinstance(packed, bytes):
        return []
    found = await get(client, unpack_names(packed[: 2 + int.from_bytes(packed[:2], "little")]))
    return [
        stored
        for stored in found
        if stored is not None
        and matches(stored, where)
        and (not where.states or stored.job.state in where.states)
        and where.reason in (None, stored.job.reason)
        and where.priority in (None, stored.job.priority)
    ]


async def find(client: RedisClient, query: Query) -> Page:
    if query.filter.key is not None and query.cursor is None:
        return Page([stored.job for stored in await find_by_key(client, query.filter)][: query.limit], None)
    listing = Listing(client, query.filter)
    found: list[Found] = []
    async for each in listing.walk(query.cursor, SCANNED_PER_PAGE, batch_size=min(BATCH_SIZE, query.limit + 1)):
        if len(found) == query.limit:
            return Page([stored.job for _, stored in found], found[-1][0])
        found.append(each)
    jobs = [stored.job for _, stored in found]
    return Page(jobs, listing.last if listing.scanned >= SCANNED_PER_PAGE else None)


async def find_chunk(client: RedisClient, request: Amend) -> tuple[list[bytes], str | None]:
    """The jobs of the next chunk of a bulk change, newest first: jobs that arrive meanwhile are not included, else a
    bulk change under load might never end."""
    assert request.filter is not None
    if request.filter.key is not None and request.cursor is None:
        found = [seq_of(stored.job.seq) for stored in await find_by_key(client, request.filter)]
        return found, str(int(found[-1])) if len(found) == request.limit else None
    listing = Listing(client, request.filter, newest_first=True)
    cursor = None if request.cursor is None else f"0:{parse_cursor(request.cursor, 1)[0]}"
    seqs: list[bytes] = []
    async for _, stored in listing.walk(cursor, SCANNED_PER_CHUNK):
        seqs.append(seq_of(stored.job.seq))
        if len(seqs) == request.limit:
            return seqs, str(stored.job.seq)
    return seqs, str(int(listing.last.rpartition(":")[2])) if listing.scanned >= SCANNED_PER_CHUNK else None


def parse_cursor(cursor: str, parts: int) -> list[str]:
    """The numbers of a cursor. The last is a seq, padded as scripts compare it."""
    numbers = cursor.split(":")
    if len(numbers) != parts or not all(number.removeprefix("-").isdecimal() for number in numbers):
        raise BadInput(f"{cursor!r} is not a cursor of this store: pass the cursor that the last page returned")
    return [*numbers[:-1], numbers[-1].zfill(16)]


# -- counts and events -------------------------------------------------------------------------------------------------


async def count(client: RedisClient, where: Filter) -> list[Tally]:
    if where.reason is where.run is where.owner is where.key is where.tag is None:
        names, counts = await lanes(client, "tally")
        tallies = [_tally(_cell(names, field), int(n)) for field, n in counts.items()]
    elif where.key is not None:
        found = (stored.job for stored in await find_by_key(client, where))
        tallies = [_tally((*_lane_of(job), job.priority, job.state), 1) for job in found]
    elif where.tag is None and (where.run is None) != (where.owner is None):
        tallies = await _count_set(client, f"run:{where.run}" if where.owner is None else f"owner:{where.owner}", where)
    else:
        counted: Counter[Cell] = Counter()
        listing = Listing(client, where)
        async for _, stored in listing.walk(None, 1 << 60):
            counted[*_lane_of(stored.job), stored.job.priority, stored.job.state] += 1
        tallies = [_tally(cell, n) for cell, n in counted.items()]
    return sorted(tally for tally in tallies if _matches_tally(tally, where))


async def _count_set(client: RedisClient, name: str, where: Filter) -> list[Tally]:
    """Count the jobs of a run or an owner in the server, so that no job is sent. Each call counts a bounded number of
    jobs, because the server does nothing else meanwhile; so a job is counted in the state that it has in its call."""
    counted: Counter[bytes] = Counter()
    after, filters = "", filter_args(where)
    while True:
        _, examined, last, cells = await client.run(scripts.COUNT, (clean(name), after, COUNTED_AT_ONCE, *filters))
        for field, n in zip(cells[::2], cells[1::2], strict=True):
            counted[field] += int(n)
        if examined < COUNTED_AT_ONCE:
            break
        after = last.decode()
    names, _ = await lanes(client, "tally")
    return [_tally(_cell(names, field), n) for field, n in counted.items()]


async def totals(client: RedisClient, queue: str | None) -> list[Total]:
    names, counts = await lanes(client, "total")
    found = []
    for field, value in counts.items():
        cell, colon, what = field.decode().partition(":")
        lane, priority = divmod(int(cell), 16)
        if queue in (None, names[lane][0]):
            found += [Total(*names[lane], priority, *each) for each in _counted(colon + what, value)]
    return sorted(found)


def _counted(what: str, value: bytes) -> list[tuple[str, int, int]]:
    """The totals in one field of the hash `total`, see job.lua."""
    if not what:
        return [("submitted", int(value), 0)]
    if what != ":":
        n, took = _TOTAL.unpack(value)
        return [(what[1:], int(n), int(took))]
    completed, ran, first, waited, batches, last, last_ran = map(int, _ATTEMPTS.unpack(value))
    found = [
        ("completed", completed, ran),
        ("waited", first, waited),
        ("batches", batches, 0),
        ("last", last, last_ran),
    ]
    return [each for each in found if each[1]]


def _lane_of(job: Job) -> LaneName:
    return job.spec.queue, job.spec.task, job.spec.version


def _cell(names: dict[int, LaneName], field: bytes) -> Cell:
    rest, state = divmod(int(field), 8)
    lane, priority = divmod(rest, 16)
    return *names[lane], priority, codes.STATES[state]


def _tally(cell: Cell, n: int) -> Tally:
    queue, task, version, priority, state = cell
    return Tally(queue, task, version, priority, state, n)


def _matches_tally(tally: Tally, where: Filter) -> bool:
    return (
        (not where.states or tally.state in where.states)
        and where.queue in (None, tally.queue)
        and where.task in (None, tally.task)
        and where.priority in (None, tally.priority)
    )


async def events(client: RedisClient, after: str | None, limit: int) -> Feed:
    """The next events. A cursor is the next row and how many of its events were seen."""
    pos, seen = (None, 0) if after in (None, LATEST) else map(int, parse_cursor(str(after), 2))
    count = 0 if after == LATEST else seen + limit
    _, first, last, rows = await client.run(scripts.FEED, ("" if pos is None else pos, count))
    oldest, end = int(first), int(last) + 1
    if after == LATEST:
        return Feed([], f"{end}:0")
    at = oldest if pos is None else pos
    if not oldest <= at <= end:
        raise CursorExpired(str(after))
    return _feed(rows, at, seen, limit)


def _feed(rows: Sequence[bytes], at: int, seen: int, limit: int) -> Feed:
    found: list[Event] = []
    cursors: list[str] = []
    for packed in rows:
        row = unpack_row(packed)
        taken = row[seen : seen + limit - len(found)]
        found += taken
        cursors += [f"{at}:{seen + read}" for read in range(1, len(taken) + 1)]
        if seen + len(taken) < len(row):
            return Feed(found, f"{at}:{seen + len(taken)}", cursors)
        at, seen = at + 1, 0
        if taken:
            cursors[-1] = f"{at}:0"
        if len(found) == limit:
            break
    return Feed(found, f"{at}:{seen}", cursors)


async def get(client: RedisClient, jobs: Sequence[str]) -> list[StoredJob | None]:
    _, found = await client.run(scripts.GET, (len(jobs), *(clean(job) for job in jobs)))
    return [None if parts is None else StoredJob(parts) for parts in found]


def delay(packed: bytes | None) -> timedelta | None:
    return None if packed is None else timedelta(microseconds=int(packed))

"""The event feed. Each follower sees each event exactly once.

Sequence numbers do not follow the order of commits: a follower that asks for events after 17 would miss a 16 that
commits later. So a cursor is a snapshot, and the next page is what that snapshot did not include. A snapshot is `xmax`,
from which on it includes nothing, and the transactions below it that were still running. A cursor inside a long page
also contains the snapshot at which the page ends, and the position in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from daybreak.core.errors import BadInput, CursorExpired
from daybreak.core.events import Event
from daybreak.store.protocol import LATEST, Feed
from daybreak.stores.postgres import event_lines
from daybreak.stores.postgres.arrays import Texts
from daybreak.stores.postgres.transaction import PostgresTransaction


@dataclass(frozen=True, slots=True)
class Snapshot:
    xmax: int = 1
    running: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ".".join(map(str, (self.xmax, *self.running)))

    def includes(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running

    @property
    def as_pg_snapshot(self) -> str:
        return f"{min((self.xmax, *self.running))}:{self.xmax}:{','.join(map(str, self.running))}"


@dataclass(frozen=True, slots=True)
class Cursor:
    seen: Snapshot
    until: Snapshot | None = None
    pos: int = 0
    skip: int = 0

    def __str__(self) -> str:
        return str(self.seen) if self.until is None else f"{self.seen}~{self.until}~{self.pos}~{self.skip}"


def events(tx: PostgresTransaction, after: str | None, limit: int) -> Feed:
    latest, purged_xid, purged_pos, running, end = tx.rows(tx.sql.feed_now)[0]
    # The smallest equivalent snapshot, so that other activity in this database does not change the cursor.
    now = Snapshot(latest + 1, tuple(sorted(xid for xid in running if xid <= latest)))
    if after == LATEST:
        return Feed([], str(Cursor(now)))
    cursor = Cursor(Snapshot()) if after is None else _parse(after)
    if after is not None:
        has_seen_purged = cursor.seen.includes(purged_xid) if cursor.until is None else cursor.pos > purged_pos
        if (purged_xid and not has_seen_purged) or cursor.seen.xmax > end:
            raise CursorExpired(after)
    found: list[Event] = []
    cursors: list[str] = []
    # A cursor inside this page must show the rest of this page and nothing else before it goes on: it says which
    # snapshot the page was read by.
    page = f"{cursor.seen}~{cursor.until or now}"
    for pos, ids, runs, text in _rows(tx, cursor, limit):
        start = cursor.skip if pos == cursor.pos else 0
        taken, row_events = event_lines.read_feed(text, runs, ids, start, limit - len(found))
        found += taken
        cursors += [f"{page}~{pos}~{start + seen}" for seen in range(1, len(taken) + 1)]
        next_skip = start + len(taken)
        if taken and next_skip == row_events:
            cursors[-1] = f"{page}~{pos + 1}~0"
        if len(found) == limit:
            at, skip = (pos, next_skip) if next_skip < row_events else (pos + 1, 0)
            return Feed(found, str(Cursor(cursor.seen, cursor.until or now, at, skip)), cursors)
    if cursor.until is not None:  # the end of a long page: the next one begins here
        if found:
            return Feed(found, str(Cursor(cursor.until)), cursors)
        return events(tx, str(Cursor(cursor.until)), limit)
    return Feed(found, str(Cursor(now if found or after is None else cursor.seen)), cursors)


def _rows(tx: PostgresTransaction, cursor: Cursor, limit: int) -> list[Any]:
    return tx.rows(
        tx.sql.feed_page,
        {
            "xmax": str(cursor.seen.xmax),
            "under_way": Texts([str(xid) for xid in cursor.seen.running]),
            "until": None if cursor.until is None else cursor.until.as_pg_snapshot,
            "pos": cursor.pos,
            "limit": limit + 1,
        },
    )


_SNAPSHOT = r"\d{1,18}(?:\.\d{1,18})*"
_CURSOR = re.compile(rf"({_SNAPSHOT})(?:~({_SNAPSHOT})~(\d{{1,18}})~(\d{{1,9}}))?")


def _parse(text: str) -> Cursor:
    if not (found := _CURSOR.fullmatch(text)):
        raise BadInput(f"{text!r} is not a cursor of this store: pass the cursor that the last page returned")
    seen, until, pos, skip = found.groups()
    return Cursor(_snapshot(seen), _snapshot(until) if until else None, int(pos or 0), int(skip or 0))


def _snapshot(text: str) -> Snapshot:
    xmax, *running = map(int, text.split("."))
    return Snapshot(xmax, tuple(running))

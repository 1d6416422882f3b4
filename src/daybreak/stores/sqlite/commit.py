"""The end of a transaction: the counts and events of all its requests are written once."""

from __future__ import annotations

from collections import Counter

from daybreak.store.protocol import EVENTS_TOPIC
from daybreak.stores.kernel.row import LaneName
from daybreak.stores.kernel.totals import add_counter
from daybreak.stores.sqlite.changes import Changes
from daybreak.stores.sqlite.rows import Counters, Values, pack_totals, unpack_totals
from daybreak.stores.sqlite.statements import sql
from daybreak.stores.sqlite.transaction import SqliteTransaction

LINES_PER_ROW = 500


def write_changes(tx: SqliteTransaction, parts: list[Changes]) -> set[str]:
    """Write the counts and events of all requests. Returns the topics to wake after the commit."""
    whole = parts[0] if len(parts) == 1 else _merged(parts)
    _write_counts(tx, whole)
    if whole.lines:
        _write_events(tx, whole.lines)
        whole.topics.add(EVENTS_TOPIC)
    return whole.topics


def _merged(parts: list[Changes]) -> Changes:
    whole = Changes(Counter(), [], [], set())
    for part in parts:
        for cell, n in part.tallies.items():
            whole.tallies[cell] += n
        whole.totals += part.totals
        whole.lines += part.lines
        whole.topics |= part.topics
    return whole


def _write_events(tx: SqliteTransaction, lines: list[bytes]) -> None:
    cache = tx.cache
    if cache.last_pos is None:
        cache.last_pos = int(tx.value(sql.last_pos))
    # A follower decodes whole rows, so a row must not grow with the size of the transaction.
    for start in range(0, len(lines), LINES_PER_ROW):
        cache.last_pos += 1
        tx.execute(sql.insert_feed, (cache.last_pos, tx.steady, b"\n".join(lines[start : start + LINES_PER_ROW])))


def _write_counts(tx: SqliteTransaction, changes: Changes) -> None:
    written: list[Values] = [
        (tx.lane(name), priority, state, n, None) for (name, priority, state), n in changes.tallies.items() if n
    ]
    changed: dict[tuple[LaneName, int], Counters] = {}
    for totals in changes.totals:
        for (name, priority, label), added in totals.added.items():
            counters = changed.get((name, priority))
            if counters is None:
                counters = changed[name, priority] = _totals(tx, name, priority)
            for what, counter in added.counters(label):
                add_counter(counters, what, counter)
    for (name, priority), counters in changed.items():
        written.append((tx.lane(name), priority, "totals", 0, pack_totals(counters)))
    if written:
        tx.executemany(sql.add_tally, written)
    if tx.cache.tallies is not None:
        tx.cache.tallies.update(changes.tallies)


def _totals(tx: SqliteTransaction, name: LaneName, priority: int) -> Counters:
    known = tx.cache.totals
    if (totals := known.get((name, priority))) is None:
        packed = tx.value(sql.load_totals, (tx.lane(name), priority))
        totals = known[name, priority] = {} if packed is None else unpack_totals(packed)
    return totals

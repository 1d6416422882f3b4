"""Snapshots of the store's totals: taken once per minute by one worker, and read as counts per period.

Snapshots are cumulative. A missing snapshot costs resolution but no counts: the next one covers its time as well.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.trend_records import LATEST_COUNTS, Place, counts_hour, counts_minute, hour_of_minute, minute_of
from daybreak.core.model import FINAL, Put, Record, State
from daybreak.core.units import micros, moment
from daybreak.policy.trend_counts import Counts, Series, Snapshot, Sums, widened
from daybreak.policy.trends import HOUR, MINUTE, admitted, series_key
from daybreak.store.protocol import Store, Total

_log = logging.getLogger("daybreak")

_SETTLED: Final = "last"  # the total that is there as soon as an attempt was settled


async def take_snapshot(store: Store, now: datetime) -> bool:
    """Record the totals and depths at the end of the last full minute, unless they are unchanged or already recorded.
    Returns whether something was written.

    The records of the minute, the hour and the newest snapshot are written in one transaction, each only if it has not
    changed since it was read. A process that is killed has written all of them or none."""
    minute = minute_of(micros(now)) - 1  # the one that has just ended
    if await store.records(*counts_minute(minute)):
        return False
    latest, revision = await read_latest(store)
    totals = await store.totals()
    after = await _series(store, totals, {} if latest is None else latest.after)
    if latest is not None and latest.after == after:
        return False
    fresh = Snapshot(micros(now), after, _before(latest, totals, after))
    hour = counts_hour(hour_of_minute(minute))
    known, hour_revision = await _read(store, hour)
    answers = await store.put([
        _put(LATEST_COUNTS, Snapshot(fresh.at, after, {}), revision),
        _put(counts_minute(minute), fresh, 0),
        _put(hour, widened(known, fresh), hour_revision),
    ])  # fmt: skip
    return any(answer is not None for answer in answers)


def _before(latest: Snapshot | None, totals: list[Total], after: Series) -> Series:
    """The counts at the start of a snapshot's period. Without an earlier snapshot, existing counts belong to no period,
    because their time is unknown; but if no attempt was settled yet, the store is new and everything counts."""
    if latest is not None:
        return latest.after
    if any(total.what == _SETTLED for total in totals):
        return after
    return {}


async def _series(store: Store, totals: list[Total], known: Series) -> Series:
    """The current totals and depths of every series. A series that has its own counts keeps them, and one that is
    counted as `*` stays there: otherwise counts would move from one series to another."""
    sums, keys = Sums(), dict.fromkeys(known)

    def kept(queue: str, task: str, priority: int) -> tuple[str, str, int]:
        key = admitted(keys, series_key(queue, task, priority))
        keys[key] = None
        return key

    for total in totals:
        sums.add_total(kept(total.queue, total.task, total.priority), total.what, total.n, total.took)
    for tally in await store.count():
        if tally.state not in FINAL:
            key = kept(tally.queue, tally.task, tally.priority)
            sums.add_depth(key, is_running=tally.state is State.RUNNING, n=tally.n)
    return sums.series()


async def take_first_snapshot(store: Store, now: datetime) -> None:
    """Take a snapshot if there is none yet. A worker does so before it claims its first job."""
    if not await store.records(*LATEST_COUNTS):
        await take_snapshot(store, now)


# -- reading -----------------------------------------------------------------------------------------------------------


async def read_count_minutes(store: Store, since: datetime, until: datetime) -> dict[datetime, Snapshot]:
    """The snapshot of each minute from the one of `since` to the one of `until` in which something changed, by the
    minute's start."""
    first, last = minute_of(micros(since)), minute_of(micros(until))
    return await _read_all(store, {counts_minute(n): moment(n * MINUTE) for n in range(first, last + 1)})


async def read_count_hours(store: Store, since: datetime, until: datetime) -> dict[datetime, Snapshot]:
    """The same for hours."""
    first, last = micros(since) // HOUR, micros(until) // HOUR
    return await _read_all(store, {counts_hour(n): moment(n * HOUR) for n in range(first, last + 1)})


async def read_now(store: Store, now: datetime) -> Snapshot:
    """The current totals, with the newest snapshot as their `before`. Before the first snapshot all counts are 0."""
    latest, _ = await read_latest(store)
    known = {} if latest is None else latest.after
    after = await _series(store, await store.totals(), known)
    return Snapshot(micros(now), after, after if latest is None else known)


async def read_latest(store: Store) -> tuple[Snapshot | None, int]:
    """The newest snapshot, whose `before` is empty, and the revision of its record."""
    return await _read(store, LATEST_COUNTS)


async def _read_all(store: Store, wanted: dict[Place, datetime]) -> dict[datetime, Snapshot]:
    found: dict[datetime, Snapshot] = {}
    for kind in dict.fromkeys(kind for kind, _ in wanted):
        for record in await store.records(kind):
            at, snapshot = wanted.get((kind, record.name)), _decoded(record)
            if at is not None and snapshot is not None:
                found[at] = snapshot
    return dict(sorted(found.items()))


async def _read(store: Store, place: Place) -> tuple[Snapshot | None, int]:
    for record in await store.records(*place):
        return _decoded(record), record.revision
    return None, 0


class _Row(Struct, array_like=True, gc=False):
    queue: str
    task: str
    priority: int
    after: Counts
    before: Counts | None


class _Stored(Struct, array_like=True):
    at: int
    rows: list[_Row]


_decoder: Final = msgspec.msgpack.Decoder(_Stored)


def _put(place: Place, snapshot: Snapshot, revision: int) -> Put:
    kind, name = place
    rows = [_Row(*key, counts, snapshot.before.get(key)) for key, counts in snapshot.after.items()]
    return Put(kind=kind, name=name, value=msgspec.msgpack.encode(_Stored(snapshot.at, rows)), expect=revision)


def _decoded(record: Record) -> Snapshot | None:
    """A record that cannot be read counts as missing, and is overwritten."""
    try:
        stored = _decoder.decode(record.value)
    except (msgspec.MsgspecError, ValueError) as error:
        _log.warning("cannot read the record %s %s: %s", record.kind, record.name, error)
        return None
    rows = [((row.queue, row.task, row.priority), row) for row in stored.rows if 0 <= row.priority <= 10]
    return Snapshot(
        stored.at,
        {key: row.after for key, row in rows},
        {key: row.before for key, row in rows if row.before is not None},
    )

"""How long jobs wait and run: workers collect sketches per minute and merge them into the store.

A worker collects in memory and merges every 5 seconds by compare-and-set, so a worker that is killed loses at most the
samples of 5 seconds. Samples are never merged twice: if it is unknown whether a write arrived, they are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.trend_records import TOTAL, Place, hour_of_minute, minute_of, sketch_hour, sketch_minute
from daybreak.core.errors import OutcomeUnknown, StoreError
from daybreak.core.model import Lease, Put, Record, Settlement
from daybreak.core.units import micros, moment
from daybreak.policy.outcome_label import waited_for
from daybreak.policy.trends import HOUR, MINUTE, Sketch, Sketches, admitted, merge_into, series_key
from daybreak.store.protocol import Store
from daybreak.system.ports import World

_log = logging.getLogger("daybreak")

EVERY: Final = timedelta(seconds=5)
TRIES: Final = 10
PAUSE: Final = timedelta(milliseconds=20)  # between two tries; doubles each time, with jitter
LONGEST_PAUSE: Final = 32 * PAUSE
MAX_PENDING: Final = 120  # records that wait to be merged while the store is unreachable
PER_PUT: Final = 10  # records in one call


class TrendStats:
    """Collects the waits and runs that this process settles."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._fresh: dict[int, Sketches] = {}
        self._minute = -1
        self._series: Sketches = {}
        self._pending: dict[Place, Sketches] = {}

    def note(self, lease: Lease, settlement: Settlement) -> None:
        """Count an accepted settlement. Attempts that are not charged (handed back, suspended) do not count."""
        if not settlement.counts_as:
            return
        sketch = self._sketch_of(lease)
        sketch.add_run(settlement.ran)
        if settlement.waited is not None and not lease.detached:
            sketch.add_wait(settlement.waited, lease.priority)

    def note_detached(self, lease: Lease) -> None:
        """Count how long a job waited whose first attempt goes on elsewhere: any process may settle that."""
        waited = waited_for(lease) if lease.attempt == 1 else None
        if waited is not None:
            self._sketch_of(lease).add_wait(waited, lease.priority)

    def _sketch_of(self, lease: Lease) -> Sketch:
        """The sketch of this minute for jobs like this one."""
        minute = self._world.wall() // MINUTE
        if minute != self._minute:
            self._begin(minute)
        key = series_key(lease.spec.queue, lease.spec.task, lease.priority)
        sketch = self._series.get(key)
        if sketch is None:
            key = admitted(self._series, key)
            sketch = self._series.setdefault(key, Sketch())
        return sketch

    def _begin(self, minute: int) -> None:
        self._minute, self._series = minute, self._fresh.setdefault(minute, {})

    @property
    def has_news(self) -> bool:
        return bool(self._fresh or self._pending)

    async def run(self) -> None:
        """Merge every 5 seconds, forever."""
        while True:
            await self._world.sleep(EVERY)
            if self.has_news:
                await self.merge()

    async def merge(self) -> None:
        """Merge what was collected into the store. Raises nothing: what cannot be merged now is merged the next
        time."""
        self._collect()
        try:
            await self._merge_pending()
        except StoreError as error:
            _log.warning("could not merge trend samples into the store: %s", error)
        except Exception:  # noqa: BLE001 - a worker must not stop because of its statistics
            _log.exception("could not merge trend samples into the store")

    def _collect(self) -> None:
        """Move what is fresh to what waits to be merged: each sample into its minute, its hour, and the total."""
        fresh, self._fresh = self._fresh, {}
        self._minute = -1
        for minute, sketches in fresh.items():
            for place in (sketch_minute(minute), sketch_hour(hour_of_minute(minute)), TOTAL):
                merge_into(self._pending.setdefault(place, {}), sketches)
        surplus = len(self._pending) - MAX_PENDING
        if surplus > 0:
            oldest = [place for place in self._pending if place != TOTAL][:surplus]
            _log.warning("dropping the trend samples of %d records: the store was unreachable for too long", surplus)
            for place in oldest:
                del self._pending[place]

    async def _merge_pending(self) -> None:
        pause = PAUSE
        for _ in range(TRIES):
            places = list(self._pending)
            for start in range(0, len(places), PER_PUT):
                await self._merge_some(places[start : start + PER_PUT])
            if not self._pending:
                return
            # Another worker merged in between. Wait a random time, so that workers do not collide again.
            await self._world.sleep(pause * self._world.chance.random())
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _merge_some(self, places: list[Place]) -> None:
        puts = [await self._merged(place) for place in places]
        # A write may arrive even if its answer is lost. Samples that count twice are worse than lost ones.
        sent = {place: self._pending.pop(place) for place in places}
        try:
            answers = await self._store.put(puts)
        except OutcomeUnknown:
            raise
        except StoreError:
            self._pending = {**sent, **self._pending}
            raise
        for (place, sketches), answer in zip(sent.items(), answers, strict=True):
            if answer is None:
                self._pending[place] = sketches

    async def _merged(self, place: Place) -> Put:
        kind, name = place
        sketches, revision = await _read(self._store, place)
        merge_into(sketches, self._pending[place])
        return Put(kind=kind, name=name, value=encode_sketches(sketches), expect=revision)


# -- reading -----------------------------------------------------------------------------------------------------------


async def read_minutes(store: Store, since: datetime, until: datetime) -> dict[datetime, Sketches]:
    """The sketches of each minute from the one of `since` to the one of `until`, by the minute's start. Minutes in
    which nothing was settled are left out. Minutes are kept for 48 hours."""
    first, last = minute_of(micros(since)), minute_of(micros(until))
    return await _read_all(store, {sketch_minute(n): moment(n * MINUTE) for n in range(first, last + 1)})


async def read_hours(store: Store, since: datetime, until: datetime) -> dict[datetime, Sketches]:
    """The sketches of each hour from the one of `since` to the one of `until`, by the hour's start. Hours are kept for
    30 days."""
    first, last = micros(since) // HOUR, micros(until) // HOUR
    return await _read_all(store, {sketch_hour(n): moment(n * HOUR) for n in range(first, last + 1)})


async def read_cumulative(store: Store) -> Sketches:
    """The sketches of all attempts so far. No count in them ever goes down, so they can be shown as histograms of
    Prometheus."""
    return (await _read(store, TOTAL))[0]


async def _read_all(store: Store, wanted: dict[Place, datetime]) -> dict[datetime, Sketches]:
    found: dict[datetime, Sketches] = {}
    for kind in dict.fromkeys(kind for kind, _ in wanted):
        for record in await store.records(kind):
            at = wanted.get((kind, record.name))
            if at is not None:
                found[at] = decode_sketches(record)
    return dict(sorted(found.items()))


async def _read(store: Store, place: Place) -> tuple[Sketches, int]:
    for record in await store.records(*place):
        return decode_sketches(record), record.revision
    return {}, 0


class _Row(Struct, array_like=True):
    queue: str
    task: str
    priority: int
    sketch: Sketch


_decoder: Final = msgspec.msgpack.Decoder(list[_Row])


def encode_sketches(sketches: Sketches) -> bytes:
    rows: Iterable[_Row] = (_Row(*key, sketch) for key, sketch in sorted(sketches.items(), key=lambda item: item[0]))
    return msgspec.msgpack.encode(list(rows))


def decode_sketches(record: Record) -> Sketches:
    """The sketches of a record. A record that cannot be read is taken as empty, and the next merge overwrites it."""
    try:
        rows = _decoder.decode(record.value)
    except (msgspec.MsgspecError, ValueError) as error:
        _log.warning("cannot read the record %s %s: %s", record.kind, record.name, error)
        return {}
    if not all(0 <= row.priority <= 10 and row.sketch.is_sound for row in rows):
        _log.warning("cannot read the record %s %s: its counts are impossible", record.kind, record.name)
        return {}
    return {(row.queue, row.task, row.priority): row.sketch for row in rows}

"""The records in which trends are kept, and when they are deleted.

| kind | name | what | kept |
|---|---|---|---|
| `trend minute 2026-11-18T04` | `38` | sketches of the waits and runs of this minute | 48 hours |
| `trend hour 2026-11-18` | `04` | sketches of the waits and runs of this hour | 30 days |
| `trend total` | `sketches` | sketches of all waits and runs so far; only ever grows | forever |
| `trend counts 2026-11-18T04` | `38` | the totals and depths before and after this minute | 48 hours |
| `trend counts 2026-11-18` | `04` | the totals and depths before and after this hour | 30 days |
| `trend latest` | `counts` | the newest totals and depths | forever |
| `trend latest` | `purged` | how far the janitor has deleted old ones | forever |

A store reads one record or all records of a kind, so the kind carries the day or the hour. Times are UTC. Each record
holds at most 306 series (`policy.trends.admitted`), encoded as MessagePack."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Put
from daybreak.core.units import micros, moment, span
from daybreak.policy.trends import DAY, HOUR, HOURS_KEPT, MINUTE, MINUTES_KEPT
from daybreak.store.protocol import Store

Place = tuple[str, str]  # kind, name

TOTAL: Final[Place] = ("trend total", "sketches")
LATEST_COUNTS: Final[Place] = ("trend latest", "counts")
PURGED: Final[Place] = ("trend latest", "purged")
MOST_PURGED: Final = 200  # kinds in one call
_CHUNK: Final = 500


def minute_of(wall: int) -> int:
    """The number of the minute since 1970 in which this instant lies, given in microseconds."""
    return wall // MINUTE


def hour_of_minute(minute: int) -> int:
    return minute * MINUTE // HOUR


def sketch_minute(minute: int) -> Place:
    at = moment(minute * MINUTE)
    return f"trend minute {at:%Y-%m-%dT%H}", f"{at:%M}"


def sketch_hour(hour: int) -> Place:
    at = moment(hour * HOUR)
    return f"trend hour {at:%Y-%m-%d}", f"{at:%H}"


def counts_minute(minute: int) -> Place:
    at = moment(minute * MINUTE)
    return f"trend counts {at:%Y-%m-%dT%H}", f"{at:%M}"


def counts_hour(hour: int) -> Place:
    at = moment(hour * HOUR)
    return f"trend counts {at:%Y-%m-%d}", f"{at:%H}"


class _Purged(Struct, frozen=True):
    """Kinds of all hours and days before these are deleted."""

    hour: int
    day: int


async def purge_trends(store: Store, now: datetime) -> None:
    """Delete trends that are older than their retention. A small record stores the progress, so each kind is read once.

    If the clock was ahead, too many trends are deleted, and nothing else; when it is set back, deletion continues from
    the corrected time."""
    wall = micros(now)
    hour_limit, day_limit = _before(wall, MINUTES_KEPT, HOUR), _before(wall, HOURS_KEPT, DAY)
    found = await store.records(*PURGED)
    purged = _Purged(hour_limit, day_limit)
    if found:
        purged = _decoded(found[0].value, purged)
    hour, day = min(purged.hour, hour_limit), min(purged.day, day_limit)
    last_hour, last_day = min(hour_limit, hour + MOST_PURGED), min(day_limit, day + MOST_PURGED)
    for n in range(hour, last_hour):
        await _delete_kinds(store, sketch_minute(n * HOUR // MINUTE)[0], counts_minute(n * HOUR // MINUTE)[0])
    for n in range(day, last_day):
        await _delete_kinds(store, sketch_hour(n * DAY // HOUR)[0], counts_hour(n * DAY // HOUR)[0])
    reached = msgspec.json.encode(_Purged(last_hour, last_day))
    if not found or found[0].value != reached:
        kind, name = PURGED
        await store.put([Put(kind=kind, name=name, value=reached)])


def _before(wall: int, kept: timedelta, size: int) -> int:
    """The number of the first hour or day of which something is still kept."""
    return (wall - span(kept)) // size


def _decoded(value: bytes, otherwise: _Purged) -> _Purged:
    try:
        return msgspec.json.decode(value, type=_Purged)
    except (msgspec.MsgspecError, ValueError):
        return otherwise


async def _delete_kinds(store: Store, *kinds: str) -> None:
    for kind in kinds:
        puts = [Put(kind=kind, name=record.name, value=None) for record in await store.records(kind)]
        for start in range(0, len(puts), _CHUNK):
            await store.put(puts[start : start + _CHUNK])

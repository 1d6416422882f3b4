"""How long something takes: a sketch of durations that many workers fill together, a day long, an hour at a time.

Durations fall into classes, each a tenth longer than the one before, so a quantile is right within a twentieth, however
many there were; and two sketches are one by adding their classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.units import micros

WINDOW: Final = timedelta(hours=24)
HOUR: Final = timedelta(hours=1)
_GROWTH: Final = math.log(1.1)
_SHORTEST: Final = 1e-6


class Hour(Struct, frozen=True, omit_defaults=True):
    """`classes` counts durations by their class, `late` those that ran into their limit, which are in them as well."""

    classes: dict[int, int] = {}
    seconds: float = 0.0
    late: int = 0


class Durations(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was seen in each hour of the last day, and in all: how many, how many ran into their limit, and how often
    the limit that follows from it has moved. Kept as a record of kind `durations`."""

    hours: dict[int, Hour] = {}
    seen: int = 0
    late: int = 0
    seconds: float = 0.0
    moved: int = 0
    base: float = 0.0
    limit: float = 0.0


NONE: Final = Durations()


def class_of(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, _SHORTEST)) / _GROWTH)


def longest_in(of_class: int) -> float:
    return math.exp(of_class * _GROWTH)


def hour_of(now: datetime) -> int:
    return micros(now) // (HOUR // timedelta(microseconds=1))


def merged(durations: Durations, fresh: Hour, now: datetime) -> Durations:
    """With what was seen since, and without what is older than a day."""
    hour, seen = hour_of(now), sum(fresh.classes.values())
    hours = {at: kept for at, kept in durations.hours.items() if hour - at <= WINDOW // HOUR}
    hours[hour] = added(hours.get(hour, Hour()), fresh)
    return replace(
        durations,
        hours=hours,
        seen=durations.seen + seen,
        late=durations.late + fresh.late,
        seconds=durations.seconds + fresh.seconds,
    )


def added(one: Hour, other: Hour) -> Hour:
    classes = dict(one.classes)
    for at, n in other.classes.items():
        classes[at] = classes.get(at, 0) + n
    return Hour(classes, one.seconds + other.seconds, one.late + other.late)


def of_one(seconds: float, *, late: bool = False) -> Hour:
    return Hour({class_of(seconds): 1}, seconds, int(late))


def classes_of(durations: Durations) -> dict[int, int]:
    """Over all hours."""
    found: dict[int, int] = {}
    for hour in durations.hours.values():
        for at, n in hour.classes.items():
            found[at] = found.get(at, 0) + n
    return found


def quantile(classes: Mapping[int, int], share: float) -> float:
    """What so large a share took at most, in seconds; 0 where there is none."""
    wanted = share * sum(classes.values())
    so_far = 0
    for at in sorted(classes):
        so_far += classes[at]
        if so_far >= wanted:
            return longest_in(at)
    return 0.0

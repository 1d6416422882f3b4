"""A sketch of durations over the last 24 hours, in hourly parts, that many workers fill together.

Durations are counted in classes, each 10 % longer than the one before, so a quantile is right within 5 % however many
durations there are; and two sketches are merged by adding the counts of their classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.units import micros

WINDOW: Final = timedelta(hours=24)
HOUR: Final = timedelta(hours=1)
_GROWTH: Final = math.log(1.1)
_SHORTEST: Final = 1e-6
_MAX_SECONDS: Final = 1e13  # of any sum
_MAX_CLASS: Final = 300  # classes above, and below, one second


class Hour(Struct, frozen=True, omit_defaults=True):
    """The durations of one hour. `classes` counts them by class, including the `late` ones that ran into their limit.
    `longest` is the longest one that was not late. `escalated` counts those whose limit was raised."""

    classes: dict[int, int] = {}
    seconds: float = 0.0
    late: int = 0
    longest: float = 0.0
    escalated: int = 0


class Durations(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The durations of each hour of the last day, and totals: how many were `seen`, how many were `late` (ran into
    their limit), how many had an `escalated` limit, and how often the limit derived from them has `moved`. `limit` is
    `multiple` times the `base`. Stored as a record of kind `durations`."""

    hours: dict[int, Hour] = {}
    seen: int = 0
    late: int = 0
    seconds: float = 0.0
    moved: int = 0
    base: float = 0.0
    limit: float = 0.0
    multiple: float = 0.0
    escalated: int = 0


NO_DURATIONS: Final = Durations()


def is_sound(durations: Durations) -> bool:
    """Whether all numbers are in range. A record that another program wrote may contain anything."""
    hours = durations.hours.values()
    counts = [durations.seen, durations.late, durations.moved, durations.escalated]
    counts += [count for hour in hours for count in (hour.late, hour.escalated)]
    amounts = [durations.seconds, durations.base, durations.limit, durations.multiple]
    return (
        min(counts) >= 0
        and all(0 <= amount < _MAX_SECONDS for amount in (*amounts, *(hour.longest for hour in hours)))
        and all(abs(at) < _MAX_CLASS and n > 0 for hour in hours for at, n in hour.classes.items())
    )


def class_of(seconds: float) -> int:
    """The class in which a duration is counted."""
    return math.ceil(math.log(max(seconds, _SHORTEST)) / _GROWTH)


def longest_in(of_class: int) -> float:
    """The longest duration of a class, in seconds."""
    return math.exp(of_class * _GROWTH)


def hour_of(now: datetime) -> int:
    """The number of the hour, counted from 1970."""
    return micros(now) // (HOUR // timedelta(microseconds=1))


def with_hour(durations: Durations, fresh: Hour, now: datetime) -> Durations:
    """The sketch with new durations added, and without the hours that are older than a day."""
    hour, seen = hour_of(now), sum(fresh.classes.values())
    hours = {at: kept for at, kept in durations.hours.items() if hour - at <= WINDOW // HOUR}
    hours[hour] = add_hours(hours.get(hour, Hour()), fresh)
    return replace(
        durations,
        hours=hours,
        seen=durations.seen + seen,
        late=durations.late + fresh.late,
        seconds=durations.seconds + fresh.seconds,
        escalated=durations.escalated + fresh.escalated,
    )


def within(durations: Durations, window: timedelta, now: datetime) -> Durations:
    """The sketch with only the hours that the last `window` touches."""
    oldest = hour_of(now - window)
    return replace(durations, hours={at: kept for at, kept in durations.hours.items() if at >= oldest})


def add_hours(one: Hour, other: Hour) -> Hour:
    """Both hours merged into one."""
    classes = dict(one.classes)
    for at, n in other.classes.items():
        classes[at] = classes.get(at, 0) + n
    return Hour(
        classes,
        one.seconds + other.seconds,
        one.late + other.late,
        max(_longest(one), _longest(other)),
        one.escalated + other.escalated,
    )


def hour_with(seconds: float, *, late: bool = False, escalated: bool = False) -> Hour:
    """An hour that contains this one duration."""
    return Hour({class_of(seconds): 1}, seconds, int(late), 0.0 if late else seconds, int(escalated))


def longest_of(durations: Durations) -> float:
    """The longest duration that was not late, over all hours, in seconds; 0 if there is none."""
    return max(map(_longest, durations.hours.values()), default=0.0)


def _longest(hour: Hour) -> float:
    # Older records have no `longest`: derive it from the classes, unless some durations were late.
    seen = [at for at, n in hour.classes.items() if n]
    if hour.longest or hour.late or not seen:
        return hour.longest
    return longest_in(max(seen))


def classes_of(durations: Durations) -> dict[int, int]:
    """The counts by class, over all hours."""
    found: dict[int, int] = {}
    for hour in durations.hours.values():
        for at, n in hour.classes.items():
            found[at] = found.get(at, 0) + n
    return found


def quantile(classes: Mapping[int, int], share: float) -> float:
    """The quantile in seconds: this share of the durations took at most so long; 0 if there are none."""
    wanted = share * sum(classes.values())
    so_far = 0
    for at in sorted(classes):
        so_far += classes[at]
        if so_far >= wanted:
            return longest_in(at)
    return 0.0


def smooth_quantile(classes: Mapping[int, int], share: float, *, at_most: float) -> float:
    """The mean of the quantiles around this one, in seconds: half way to the nearer end, and as far to the other side.
    Each duration counts as at most `at_most`. A plain quantile jumps when one more duration passes its rank; this one
    moves a little."""
    seen, reach = sum(classes.values()), min(share, 1 - share) / 2
    first, last = (share - reach) * seen, (share + reach) * seen
    so_far, seconds = 0, 0.0
    for at in sorted(classes):
        within = min(so_far + classes[at], last) - max(so_far, first)
        seconds += max(within, 0.0) * min(longest_in(at), at_most)
        so_far += classes[at]
    return seconds / (last - first) if seen else 0.0

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

from daybreak.core.units import micros

WINDOW: Final = timedelta(hours=24)
HOUR: Final = timedelta(hours=1)
_GROWTH: Final = math.log(1.1)
_SHORTEST: Final = 1e-6
_MOST: Final = 1e13  # seconds, in all
_CLASSES: Final = 300  # to either side of a second


class Hour(Struct, frozen=True, omit_defaults=True):
    """`classes` counts durations by their class, `late` those that ran into their limit, which are in them as well.
    `longest` is the longest of those that came to their end."""

    classes: dict[int, int] = {}
    seconds: float = 0.0
    late: int = 0
    longest: float = 0.0


class Durations(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was seen in each hour of the last day, and in all: how many, how many ran into their limit, and how often
    the limit that follows from it has moved. `limit` is `multiple` times the `base` it was told with. Kept as a record
    of kind `durations`."""

    hours: dict[int, Hour] = {}
    seen: int = 0
    late: int = 0
    seconds: float = 0.0
    moved: int = 0
    base: float = 0.0
    limit: float = 0.0
    multiple: float = 0.0


NO_DURATIONS: Final = Durations()


def is_sound(durations: Durations) -> bool:
    """Whether these are numbers that can have been seen; what comes from elsewhere may be anything."""
    hours = durations.hours.values()
    counts = [durations.seen, durations.late, durations.moved, *(hour.late for hour in hours)]
    amounts = [durations.seconds, durations.base, durations.limit, durations.multiple]
    return (
        min(counts) >= 0
        and all(0 <= amount < _MOST for amount in (*amounts, *(hour.longest for hour in hours)))
        and all(abs(at) < _CLASSES and n > 0 for hour in hours for at, n in hour.classes.items())
    )


def class_of(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, _SHORTEST)) / _GROWTH)


def longest_in(of_class: int) -> float:
    return math.exp(of_class * _GROWTH)


def hour_of(now: datetime) -> int:
    return micros(now) // (HOUR // timedelta(microseconds=1))


def with_hour(durations: Durations, fresh: Hour, now: datetime) -> Durations:
    """With what was seen since, and without what is older than a day."""
    hour, seen = hour_of(now), sum(fresh.classes.values())
    hours = {at: kept for at, kept in durations.hours.items() if hour - at <= WINDOW // HOUR}
    hours[hour] = add_hours(hours.get(hour, Hour()), fresh)
    return replace(
        durations,
        hours=hours,
        seen=durations.seen + seen,
        late=durations.late + fresh.late,
        seconds=durations.seconds + fresh.seconds,
    )


def add_hours(one: Hour, other: Hour) -> Hour:
    classes = dict(one.classes)
    for at, n in other.classes.items():
        classes[at] = classes.get(at, 0) + n
    return Hour(classes, one.seconds + other.seconds, one.late + other.late, max(_longest(one), _longest(other)))


def hour_with(seconds: float, *, late: bool = False) -> Hour:
    return Hour({class_of(seconds): 1}, seconds, int(late), 0.0 if late else seconds)


def longest_of(durations: Durations) -> float:
    """The longest that came to its end, over all hours, in seconds; 0 where there is none."""
    return max(map(_longest, durations.hours.values()), default=0.0)


def _longest(hour: Hour) -> float:
    # Records of before do not say it: there it is told from the classes, unless some of them were late.
    seen = [at for at, n in hour.classes.items() if n]
    return hour.longest if hour.longest or hour.late or not seen else longest_in(max(seen))


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


def smooth_quantile(classes: Mapping[int, int], share: float, *, at_most: float) -> float:
    """The mean of all quantiles around this one, half way to the end and as far to the other side, in seconds; each
    counts up to `at_most`. Where a quantile jumps as one duration more passes its rank, this one moves on a little."""
    seen, reach = sum(classes.values()), min(share, 1 - share) / 2
    first, last = (share - reach) * seen, (share + reach) * seen
    so_far, seconds = 0, 0.0
    for at in sorted(classes):
        within = min(so_far + classes[at], last) - max(so_far, first)
        seconds += max(within, 0.0) * min(longest_in(at), at_most)
        so_far += classes[at]
    return seconds / (last - first) if seen else 0.0

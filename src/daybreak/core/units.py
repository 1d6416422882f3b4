"""What people write for priorities, durations and instants, read strictly; and what stores keep of them."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final

from daybreak.core.errors import BadInput

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
ZERO: Final = timedelta()
MAX_DURATION: Final = timedelta(days=36_500)


class Priority(IntEnum):
    """The named points of the scale 0 to 10; lower runs first, and every integer between is valid too."""

    EMERGENCY = 0
    CRITICAL = 1
    HIGH = 2
    NORMAL = 5
    LOW = 7
    BACKGROUND = 10


_BUCKETS: Final = (
    Priority.EMERGENCY, Priority.CRITICAL, Priority.HIGH, Priority.HIGH, Priority.NORMAL, Priority.NORMAL,
    Priority.NORMAL, Priority.LOW, Priority.LOW, Priority.BACKGROUND, Priority.BACKGROUND,
)  # fmt: skip
_BY_NAME: Final = {p.name: p.value for p in Priority}
_NAMES: Final = ", ".join(f"{p.name} {p.value}" for p in Priority)


def priority(value: object) -> int:
    """The integer meant by an enum member, a name in any case, or an int; anything else is an error, never NORMAL."""
    if isinstance(value, str) and (named := _BY_NAME.get(value.upper())) is not None:
        return named
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10:
        return int(value)
    raise BadInput(f"{value!r} is no priority: use a name ({_NAMES}) or an integer from 0 to 10, lower runs first")


def bucket(value: int) -> Priority:
    """The name under which a priority is counted."""
    return _BUCKETS[value]


_DURATION: Final = re.compile(
    r"(?=.)(?:(?P<days>\d+(?:\.\d+)?)d)?(?:(?P<hours>\d+(?:\.\d+)?)h)?(?:(?P<minutes>\d+(?:\.\d+)?)m(?!s))?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)s)?(?:(?P<milliseconds>\d+(?:\.\d+)?)ms)?"
)


def duration(value: object, what: str = "duration") -> timedelta:
    """A timedelta, or text such as "90s", "10m", "1h30m"; never a bare number, whose unit nobody can see."""
    match value:
        case timedelta():
            found = value
        case str() if parts := _DURATION.fullmatch(value.strip().lower()):
            found = _sum(parts)
        case bool():
            raise BadInput(f"{what}: {value!r} is no duration; write '90s', '10m', '1h30m' or a timedelta")
        case int() | float():
            raise BadInput(f"{what}: a bare number has no unit; write '{value}s' or timedelta(seconds={value})")
        case _:
            raise BadInput(f"{what}: {value!r} is no duration; write '90s', '10m', '1h30m' or a timedelta")
    if not ZERO <= found <= MAX_DURATION:
        raise BadInput(f"{what}: {value!r} is out of range; it must lie between 0 and 100 years")
    return found


def _sum(parts: re.Match[str]) -> timedelta:
    try:
        return timedelta(**{unit: float(n) for unit, n in parts.groupdict().items() if n is not None})
    except OverflowError:
        return timedelta.max  # refused by the caller, as any other that is too long


def instant(value: object, what: str = "instant") -> datetime:
    """An aware datetime, in UTC; a naive one could mean any hour and is refused."""
    if not isinstance(value, datetime):
        raise BadInput(f"{what}: {value!r} is no datetime; write datetime(2026, 1, 31, 18, 0, tzinfo=UTC)")
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadInput(f"{what}: {value.isoformat()} has no time zone; add one, e.g. value.astimezone() for local time")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise BadInput(
            f"{what}: {value.isoformat()} is out of range; in UTC it lies outside the years 1 to 9999"
        ) from None


def clean(text: str) -> str:
    """Text that every encoding can carry: half a surrogate pair (an undecodable file name, say) is spelt out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def micros(value: datetime) -> int:
    """An instant as stores keep it: microseconds since 1970 in UTC, exact."""
    return (value - EPOCH) // MICROSECOND


@functools.lru_cache(maxsize=512)  # a batch names the same few instants again and again
def moment(value: int) -> datetime:
    """The instant that a store kept as microseconds."""
    return EPOCH + timedelta(microseconds=value)


@functools.lru_cache(maxsize=512)  # most are settings, the same for job after job
def span(value: timedelta) -> int:
    """A duration as stores keep it: whole microseconds."""
    return value // MICROSECOND


@functools.lru_cache(maxsize=512)
def period(value: int) -> timedelta:
    """The duration that a store kept as microseconds."""
    return timedelta(microseconds=value)


def counted(n: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 jobs`; `many` where an s would not do."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def bytes_text(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"

"""Strict parsers for priorities, durations and instants, and the integers in which stores keep times."""

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
    """The priority as an integer, from an enum member, a name in any case, or an int. Anything else is an error; there
    is no default."""
    if isinstance(value, str):
        named = _BY_NAME.get(value.upper())
        if named is not None:
            return named
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10:
        return int(value)
    raise BadInput(f"{value!r} is not a priority: use a name ({_NAMES}) or an integer from 0 to 10; lower runs first")


def bucket(value: int) -> Priority:
    """The named priority under which statistics count this one."""
    return _BUCKETS[value]


_DURATION: Final = re.compile(
    r"(?=.)(?:(?P<days>\d+(?:\.\d+)?)d)?(?:(?P<hours>\d+(?:\.\d+)?)h)?(?:(?P<minutes>\d+(?:\.\d+)?)m(?!s))?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)s)?(?:(?P<milliseconds>\d+(?:\.\d+)?)ms)?"
)


def duration(value: object, what: str = "duration") -> timedelta:
    """The duration given as a timedelta or as text, such as "90s", "10m" or "1h30m". A bare number is an error, because
    its unit is not visible. `what` names the value in an error."""
    if isinstance(value, timedelta):
        found = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        raise BadInput(f"{what}: a bare number has no unit; write '{value}s' or timedelta(seconds={value})")
    else:
        parts = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        if parts is None:
            raise BadInput(f"{what}: {value!r} is not a duration; write '90s', '10m', '1h30m' or a timedelta")
        found = _sum(parts)
    if not ZERO <= found <= MAX_DURATION:
        raise BadInput(f"{what}: {value!r} is out of range; a duration is from 0 to 100 years")
    return found


def _sum(parts: re.Match[str]) -> timedelta:
    try:
        return timedelta(**{unit: float(n) for unit, n in parts.groupdict().items() if n is not None})
    except OverflowError:
        return timedelta.max  # the caller refuses it as out of range


def instant(value: object, what: str = "instant") -> datetime:
    """The datetime in UTC. A naive one is an error, because its time zone is unknown."""
    if not isinstance(value, datetime):
        raise BadInput(f"{what}: {value!r} is not a datetime; write datetime(2026, 1, 31, 18, 0, tzinfo=UTC)")
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadInput(f"{what}: {value.isoformat()} has no time zone; add one, e.g. value.astimezone() for local time")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise BadInput(
            f"{what}: {value.isoformat()} is out of range; in UTC it is outside the years 1 to 9999"
        ) from None


def clean(text: str) -> str:
    """The text with unpaired surrogates (from an undecodable file name, say) escaped, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def micros(value: datetime) -> int:
    """An instant as stores keep it: exact microseconds since 1970 in UTC."""
    return (value - EPOCH) // MICROSECOND


@functools.lru_cache(maxsize=512)  # the jobs of a batch share a few instants
def moment(value: int) -> datetime:
    """The instant that a store keeps as microseconds; the inverse of `micros`."""
    return EPOCH + timedelta(microseconds=value)


@functools.lru_cache(maxsize=512)  # most durations are settings, the same for many jobs
def span(value: timedelta) -> int:
    """A duration as stores keep it: whole microseconds."""
    return value // MICROSECOND


@functools.lru_cache(maxsize=512)
def period(value: int) -> timedelta:
    """The duration that a store keeps as microseconds; the inverse of `span`."""
    return timedelta(microseconds=value)


def counted(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 job`, `2 jobs`. `many` is the plural if it is not formed with an s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def bytes_text(n: float) -> str:
    """A size for people, such as `512 bytes` or `1.5 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return counted(round(n), "byte") if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"

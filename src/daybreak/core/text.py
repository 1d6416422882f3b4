"""Text for people: escapes control characters, and formats times, durations and numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from daybreak.core.flights import is_flight_cause
from daybreak.core.units import bucket
from daybreak.core.units import counted as counted  # noqa: PLC0414 - re-exported with the other formatters

_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def safe(text: str, *, lines: bool = False) -> str:
    """The text with control characters, escape sequences and bidirectional marks escaped, so that it cannot control the
    terminal. `lines` keeps line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c, lines) for c in text)


def _escaped(char: str, lines: bool) -> str:
    if lines and char in "\n\t":
        return "\n" if char == "\n" else "    "
    if unicodedata.category(char) == "Zs":  # spaces of all widths
        return char
    return char.encode("unicode_escape").decode()


def first_line(text: str, limit: int = 200) -> str:
    """The first line of a text, shortened to `limit` characters."""
    line = safe(text.strip().split("\n", 1)[0].strip())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def number(n: int) -> str:
    return f"{n:,}"


def any_of(words: Iterable[str], last: str = "or") -> str:
    """A list in words: `a`, `a or b`, `a, b or c`."""
    found = list(words)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} {last} {found[-1]}"


def lasted(span: timedelta) -> str:
    """A duration: 12 ms, 1.2 s, 3 min 4 s, 2 h 5 min."""
    seconds = max(span.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for (unit, size), (lower, below) in pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // below
            return (
                f"{whole // size} {unit} {rest} {lower}" if rest and whole < 100 * size else f"{whole // size} {unit}"
            )
    return f"{whole} s"


def roughly(span: timedelta) -> str:
    """A duration in its largest unit."""
    seconds = abs(span.total_seconds())
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"


def ago(when: datetime | None, now: datetime) -> str:
    """2 min ago, in 5 min, now."""
    if when is None:
        return ""
    passed = now - when
    if abs(passed) < timedelta(seconds=1):
        return "now"
    return f"{roughly(passed)} ago" if passed > timedelta() else f"in {roughly(passed)}"


def cause_text(cause: str) -> str:
    """What a blocked job waits for: the name of a resource is meant for people, the key of a flight is not."""
    return "the result of an equal job" if is_flight_cause(cause) else cause


def local(when: datetime | None) -> str:
    """An instant in local time, with the zone."""
    if when is None:
        return ""
    here = _here(when)
    zone = here.tzname() or ""
    return f"{here:%Y-%m-%d %H:%M:%S} {zone if zone.isalpha() and len(zone) <= 5 else here.strftime('%z')}"


def _here(when: datetime) -> datetime:
    try:
        return when.astimezone()
    except (OverflowError, OSError, ValueError):  # too close to the first or last year of the calendar
        return when.astimezone(UTC)


def clock(when: datetime) -> str:
    """An instant in local time to the millisecond, without the zone."""
    here = _here(when)
    return f"{here:%Y-%m-%d %H:%M:%S}.{here.microsecond // 1000:03}"


def percent(progress: float | None) -> str:
    return "" if progress is None else f"{progress:.0%}".replace("%", " %")


def bar(progress: float, width: int = 20) -> str:
    full = round(min(max(progress, 0), 1) * width)
    return "█" * full + "░" * (width - full)


def priority_name(priority: int) -> str:
    """`normal` for 5; for a number without a name, the named priority it is counted under and the number: `normal
    4`."""
    named = bucket(priority)
    return named.name.lower() if named == priority else f"{named.name.lower()} {priority}"


def as_argument(name: str) -> tuple[str, ...]:
    """A name as the words of a command to type: one that begins with a dash must not be taken for an option."""
    return ("--", name) if name.startswith("-") else (name,)

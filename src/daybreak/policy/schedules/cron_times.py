"""Cron expressions in time zones: the instants at which they tick, over changes of the clock in both directions.

cronsim parses an expression and walks over times without a zone; what becomes of times that a zone skips or repeats is
decided here, as Debian's cron does:

- An expression with fixed minutes and hours (neither field begins with `*`) means times of day. A time that is skipped
  ticks at the first instant after the gap; a time that occurs twice ticks the first time only.
- Any other expression means whatever the clock on the wall shows: in a skipped hour it does not tick, in a repeated
  hour it ticks twice."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from daybreak.core.errors import BadInput

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
SECOND: Final = timedelta(seconds=1)
DAY: Final = timedelta(days=1)
_WRONG_ORDINAL: Final = re.compile(r"\b([2-9][123])th\b")  # cronsim says 31th
_ENDINGS: Final = {"1": "st", "2": "nd", "3": "rd"}
_SAMPLE: Final = datetime(2026, 1, 1)  # noqa: DTZ001 - cron expressions are matched without a zone


def parse_cron(text: object) -> str:
    """The expression in its stored form, or an error that says what is wrong."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"cron={text!r:.60}: write five fields, such as '30 2 * * *' for every day at 02:30")
    expression = NICKNAMES.get(text.strip().lower(), " ".join(text.upper().split()))
    if expression.startswith("@"):
        raise BadInput(f"cron={text!r:.60}: no such name; the names are {', '.join(NICKNAMES)}")
    if len(expression.split()) not in (5, 6):
        raise BadInput(
            f"cron={text!r:.60} has {len(expression.split())} fields: write minute, hour, day of the month, month and "
            "day of the week, such as '30 2 * * *'; a sixth field in front is the second"
        )
    from cronsim import CronSimError  # noqa: PLC0415 - few programs have schedules

    try:
        first = _walk(expression, _SAMPLE)
    except (CronSimError, ValueError, AssertionError) as error:
        raise BadInput(
            f"cron={text!r:.60}: {_lower(str(error) or 'it cannot be read')}; "
            "minutes are 0-59, hours 0-23, days 1-31, months 1-12, days of the week 0-7 (0 and 7 are Sunday)"
        ) from None
    if first is None:
        raise BadInput(f"cron={text!r:.60} never ticks: no date matches it in 50 years")
    return expression


def cron_words(expression: str) -> str:
    """The expression in words: `at 02:30 every day`."""
    from cronsim.explain import explain  # noqa: PLC0415

    return _lower(_WRONG_ORDINAL.sub(lambda found: found[1] + _ENDINGS[found[1][-1]], explain(expression)))


def next_cron_tick(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    """The first tick after this instant; None if there is none in 50 years."""
    try:
        if means_times_of_day(expression):
            return _next_time_of_day(expression, zone, after)
        return _next_shown(expression, zone, after)
    except OverflowError:  # the year 9999
        return None


def means_times_of_day(expression: str) -> bool:
    """Whether both the minutes and the hours are fixed."""
    minute, hour = expression.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def first_existing(naive: datetime, zone: tzinfo) -> datetime:
    """The instant of a local time: its first occurrence or, if it is skipped, the end of the gap."""
    early, late = (naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early.astimezone(zone).replace(tzinfo=None) == naive:
        return early
    change = _first_change(zone, late, early)  # in a gap, fold=1 is the earlier of the two
    return early if change is None else change


def _next_time_of_day(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    naive: datetime | None = after.astimezone(zone).replace(tzinfo=None)
    while naive is not None:
        naive = _walk(expression, naive)
        if naive is not None:
            instant = first_existing(naive, zone)
            if instant > after:  # otherwise `after` is in the second occurrence of a repeated hour
                return instant
    return None


def _next_shown(expression: str, zone: tzinfo, after: datetime) -> datetime | None:
    """Between two changes of the zone's offset, local time is plain arithmetic. So walk from change to change."""
    since, offset = after, _offset(zone, after)
    naive = (after + offset).replace(tzinfo=None)
    while True:
        found = _walk(expression, naive)
        if found is None:
            return None
        instant = found.replace(tzinfo=UTC) - offset
        change = _first_change(zone, since, instant)
        if change is None:
            return instant
        since, offset = change, _offset(zone, change)
        naive = (change + offset).replace(tzinfo=None) - SECOND  # the instant of the change itself may match


def _walk(expression: str, naive: datetime) -> datetime | None:
    """The next match after a time without a zone."""
    from cronsim import CronSim  # noqa: PLC0415

    found: datetime | None = next(iter(CronSim(expression, naive)), None)
    return found


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    return timedelta() if offset is None else offset


def _first_change(zone: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which the zone's offset differs from that at `after`, to the second."""
    offset, low = _offset(zone, after), after
    while low < until:
        high = min(low + DAY, until)
        if _offset(zone, high) != offset:
            return _bisect(zone, low, high, offset)
        low = high
    return None


def _bisect(zone: tzinfo, low: datetime, high: datetime, offset: timedelta) -> datetime:
    low = low.replace(microsecond=0)
    while high - low > SECOND:
        middle = low + (high - low) // 2 // SECOND * SECOND
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]

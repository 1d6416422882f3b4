"""When a schedule ticks: by a cron expression, at an interval, or at given instants."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import EPOCH, duration, instant
from daybreak.policy.schedules.cron_times import next_cron_tick, parse_cron

SHORTEST_INTERVAL: Final = timedelta(seconds=1)
MAX_INSTANTS: Final = 1000
FIRST_WINDOW: Final = timedelta(minutes=1)


class Timing(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Exactly one of `cron`, `every` and `at` is set. `tz` is the name of the zone in which a cron expression is meant.

    The ticks of `every` are the multiples of the interval since 1970 in UTC, so they do not depend on when the schedule
    was created, or by whom: `every="1h"` ticks on the hour."""

    cron: str = ""
    every: timedelta | None = None
    at: tuple[datetime, ...] = ()
    tz: str = "UTC"


def parse_timing(*, cron: object = None, every: object = None, at: object = None, tz: object = None) -> Timing:
    """Parse what `app.schedule` was given. Errors show the right spelling."""
    if sum(given is not None for given in (cron, every, at)) != 1:
        raise BadInput("a schedule needs one of cron='30 2 * * *', every='15m' and at=datetime(...)")
    zone = "UTC" if tz is None else _zone_name(tz)
    if cron is not None:
        return Timing(cron=parse_cron(cron), tz=zone)
    if every is not None:
        interval = duration(every, "every")
        if interval < SHORTEST_INTERVAL:
            raise BadInput(f"every={every!r}: the shortest interval is 1s")
        if zone != "UTC":
            raise BadInput(
                f"every={every!r} counts from 1970 in UTC, so tz={zone!r} has no effect: leave it out, or write a "
                "time of day in this zone, such as cron='0 0 * * *'"
            )
        return Timing(every=interval)
    return Timing(at=_instants(at), tz=zone)


def zone_of(timing: Timing) -> ZoneInfo:
    """The time zone. Raises BadInput if this machine does not know it."""
    return ZoneInfo(_zone_name(timing.tz))


def _zone_name(tz: object) -> str:
    name = tz.key if isinstance(tz, ZoneInfo) else tz
    if name is UTC:
        return "UTC"
    if not isinstance(name, str) or not name:
        raise BadInput(f"tz={tz!r:.60}: write the name of a time zone, such as 'Europe/Berlin'")
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        close = get_close_matches(name, available_timezones(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "write a name such as 'Europe/Berlin'"
        raise BadInput(f"tz={name!r:.60}: no such time zone on this machine; {hint}") from None
    return name


def _instants(at: object) -> tuple[datetime, ...]:
    given = list(at) if isinstance(at, Iterable) and not isinstance(at, str) else [at]
    if not 1 <= len(given) <= MAX_INSTANTS:
        raise BadInput(f"at=[...] has {len(given)} instants: write 1 to {MAX_INSTANTS:,}")
    return tuple(sorted({instant(_parsed(one), "at") for one in given}))


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise BadInput(f"at={value!r:.60}: write '2026-12-24T18:00+01:00' or an aware datetime") from None


# -- ticks -------------------------------------------------------------------------------------------------------------


def next_tick(timing: Timing, after: datetime) -> datetime | None:
    """The first tick after this instant, in UTC; None if there is none."""
    if timing.every is not None:
        try:
            return EPOCH + ((after - EPOCH) // timing.every + 1) * timing.every
        except OverflowError:
            return None
    if timing.at:
        return next((one for one in timing.at if one > after), None)
    return next_cron_tick(timing.cron, zone_of(timing), after)


def ticks(timing: Timing, after: datetime) -> Iterator[datetime]:
    """All ticks after this instant, in order."""
    tick = next_tick(timing, after)
    while tick is not None:
        yield tick
        tick = next_tick(timing, tick)


def ticks_until(timing: Timing, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """The first `limit` ticks in (after, until]."""
    return list(itertools.islice(itertools.takewhile(lambda tick: tick <= until, ticks(timing, after)), limit))


def count_ticks(timing: Timing, after: datetime, until: datetime, limit: int) -> int:
    """How many ticks there are in (after, until], counted up to `limit`."""
    if timing.every is not None:
        return min(limit, max(0, (until - EPOCH) // timing.every - (after - EPOCH) // timing.every))
    return len(ticks_until(timing, after, until, limit))


def latest_tick(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The last tick in (after, until]. It looks backwards, in windows that grow, so that a year of minutes is not
    walked through."""
    if timing.every is not None:
        latest = EPOCH + (until - EPOCH) // timing.every * timing.every
        return latest if latest > after else None
    window = FIRST_WINDOW
    while until > after:
        start = max(after, until - window)
        found = None
        for tick in ticks(timing, start):
            if tick > until:
                break
            found = tick
        if found is not None or start == after:
            return found
        window *= 4
    return None

"""Schedules in words, for people."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from daybreak.core.text import number
from daybreak.core.units import counted
from daybreak.policy.schedules.cron_times import cron_words, means_times_of_day
from daybreak.policy.schedules.timing import Timing, ticks, zone_of


class PreviewedTick(Struct, frozen=True):
    """A tick to come. `local` is its time in the zone of the schedule, and `note` says what is special about it."""

    at: datetime
    local: str
    note: str = ""


def timing_words(timing: Timing) -> str:
    """When a schedule ticks: `at 02:30 every day, Europe/Berlin time`."""
    if timing.every is not None:
        return f"every {interval_words(timing.every)}"
    if timing.cron:
        return f"{cron_words(timing.cron)}, {timing.tz} time"
    first = local_words(timing.at[0], timing)
    others = len(timing.at) - 1
    return f"on {first}" if not others else f"on {first} and {counted(others, 'more time')}"


def interval_words(interval: timedelta) -> str:
    """An interval without the number if it is one: `minute`, `15 minutes`, `1 hour 30 minutes`."""
    parts = []
    rest = interval.total_seconds()
    for unit, seconds in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        n, rest = divmod(rest, seconds)
        if n:
            parts.append((int(n), unit))
    words = [f"{number(n)} {unit}{'' if n == 1 else 's'}" for n, unit in parts]
    if rest:
        words.append(f"{rest:g} second{'' if rest == 1 else 's'}")
    return words[0].removeprefix("1 ") if len(words) == 1 else " ".join(words)


def local_words(tick: datetime, timing: Timing) -> str:
    """A tick in the zone of its schedule: `Sun 29 Mar 2026 03:00:00 CEST`."""
    return f"{tick.astimezone(zone_of(timing)):%a %d %b %Y %H:%M:%S %Z}"


def preview(timing: Timing, after: datetime, n: int) -> list[PreviewedTick]:
    """The next ticks, with a note at those that a change of the clock concerns."""
    found: list[PreviewedTick] = []
    for tick in ticks(timing, after):
        if len(found) == n:
            break
        found.append(PreviewedTick(tick, local_words(tick, timing), _note(timing, tick)))
    return found


def _note(timing: Timing, tick: datetime) -> str:
    zone = zone_of(timing)
    local = tick.astimezone(zone)
    before = (tick - timedelta(microseconds=1)).astimezone(zone)
    if local.utcoffset() != before.utcoffset() and local.replace(tzinfo=None) > before.replace(tzinfo=None):
        return f"the clock goes forward from {(before + timedelta(microseconds=1)):%H:%M} to {local:%H:%M}"
    again = local.replace(fold=1)
    if timing.cron and not local.fold and again.utcoffset() != local.utcoffset():
        once = means_times_of_day(timing.cron)
        return f"{local:%H:%M} occurs twice, {'the first time counts' if once else 'this is the first time'}"
    if local.fold:
        return f"{local:%H:%M} occurs twice, this is the second time"
    return ""

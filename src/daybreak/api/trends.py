"""Trends: what happened in the last minutes, hours or days, and how long jobs waited and ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.client.trend_counts import read_count_hours, read_count_minutes, read_now
from daybreak.client.trend_stats import read_hours, read_minutes
from daybreak.core.errors import BadInput
from daybreak.core.units import Priority, duration, instant, micros, moment
from daybreak.policy.trend_counts import NO_COUNTS, Counts, Series, Snapshot, added, differences, widened
from daybreak.policy.trends import (
    DAY,
    HOUR,
    HOURS_KEPT,
    MINUTE,
    OTHER,
    Key,
    Sketch,
    Sketches,
    merged,
    quantile,
    wait_target,
)

T = TypeVar("T")
By = Literal["queue", "priority", "task"]
Resolution = Literal["minute", "hour", "day"]

ZERO: Final = timedelta()
_MINUTE: Final = timedelta(minutes=1)
SIZES: Final[Mapping[Resolution, int]] = {"minute": MINUTE, "hour": HOUR, "day": DAY}
LONGEST: Final[Mapping[Resolution, timedelta]] = {
    "minute": timedelta(hours=12),
    "hour": HOURS_KEPT,
    "day": HOURS_KEPT,
}  # so that there are at most 721 points
MINUTES_UP_TO: Final = timedelta(hours=3)
HOURS_UP_TO: Final = timedelta(days=4)
MOST_GROUPS: Final = 100
MOST_CELLS: Final = 5000  # points of all groups together


class TrendFigures(Struct, frozen=True, kw_only=True):
    """What happened in a period. Counts and averages are exact; quantiles are less than 5 % from the exact value and
    cover the attempts that workers ran. `waiting` and `running` are jobs at the end of the period. `target_met` is the
    share of jobs whose wait was within the target of their priority, and None where no job with a target started.
    `cached` jobs completed without running, because their result was known or on its way, which `saved` so much run
    time; averages and quantiles leave them out."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    expired: int = 0
    shed: int = 0
    cancelled: int = 0
    retries: int = 0
    retries_failed: int = 0
    timeouts: int = 0
    lost: int = 0
    cached: int = 0
    saved: timedelta = ZERO
    waiting: int = 0
    running: int = 0
    average_wait: timedelta = ZERO
    wait_p50: timedelta = ZERO
    wait_p95: timedelta = ZERO
    wait_p99: timedelta = ZERO
    average_run: timedelta = ZERO
    run_p50: timedelta = ZERO
    run_p95: timedelta = ZERO
    run_p99: timedelta = ZERO
    target_met: float | None = None


class TrendPoint(TrendFigures, frozen=True, kw_only=True):
    """The figures of the minute, hour or day that begins `at` this instant."""

    at: datetime


class TrendGroup(Struct, frozen=True, kw_only=True):
    """One queue, priority or task; `*` stands for all that are not listed. `target` is the wait target of a
    priority."""

    name: str
    target: timedelta | None = None
    figures: TrendFigures
    points: list[TrendPoint]


class Trends(Struct, frozen=True, kw_only=True):
    """The figures from `since` to `until`, in all and by queue, priority or task."""

    since: datetime
    until: datetime
    resolution: Resolution
    by: By
    queue: str | None = None
    figures: TrendFigures
    points: list[TrendPoint]
    groups: list[TrendGroup]


async def trends_of(
    client: Client,
    since: object,
    *,
    by: str = "queue",
    resolution: str | None = None,
    queue: str | None = None,
) -> Trends:
    """Trends from `since` (an age such as "7d", or an instant) until now, of one queue or of all."""
    now = moment(client.wall())
    group_by = _choice(by, get_args(By), "by")
    age = _age(since, now)
    step = _resolution(resolution, age)
    size = MINUTE if step == "minute" else HOUR
    start = moment(micros(now - age) // size * size)
    store = client.store
    if step == "minute":
        sketches = await read_minutes(store, start, now)
        snapshots = await read_count_minutes(store, start, now)
    else:
        sketches = await read_hours(store, start, now)
        snapshots = await read_count_hours(store, start, now)
    last = moment(micros(now) // size * size)
    snapshots[last] = widened(snapshots.get(last), await read_now(store, now))
    window = _Window(start, now, step, queue, sketches, snapshots)
    # In a thread, because a month of many series takes a tenth of a second of CPU time.
    return await asyncio.to_thread(_trends, window, group_by)


def _choice(value: str, known: tuple[By, ...], what: str) -> By:
    for one in known:
        if value == one:
            return one
    raise BadInput(f"{what}: {value!r} is unknown; use one of {', '.join(known)}")


def _age(since: object, now: datetime) -> timedelta:
    """The age in whole minutes, so that an instant computed as "3 hours ago" still counts as 3 hours."""
    age = now - instant(since, "since") if isinstance(since, datetime) else duration(since, "since")
    whole = max(age // _MINUTE * _MINUTE, _MINUTE)
    if age <= ZERO or whole > HOURS_KEPT:
        raise BadInput(f"since: {since!s} is out of range; trends reach back 30 days at most")
    return whole


def _resolution(wanted: str | None, age: timedelta) -> Resolution:
    """The requested resolution, or else one that gives a readable number of points."""
    if wanted is None:
        if age <= MINUTES_UP_TO:
            return "minute"
        return "hour" if age <= HOURS_UP_TO else "day"
    for known, longest in LONGEST.items():
        if wanted == known:
            if age > longest:
                raise BadInput(
                    f"resolution: minutes reach back {longest // timedelta(hours=1)} hours at most; "
                    "use resolution 'hour' or a shorter time"
                )
            return known
    raise BadInput(f"resolution: {wanted!r} is unknown; use one of {', '.join(SIZES)}")


# -- arithmetic --------------------------------------------------------------------------------------------------------


class _Window:
    """The data that was read, by period: the counts, sketches and depths of each series."""

    def __init__(
        self,
        start: datetime,
        until: datetime,
        resolution: Resolution,
        queue: str | None,
        sketches: Mapping[datetime, Sketches],
        snapshots: Mapping[datetime, Snapshot],
    ) -> None:
        self.start, self.until, self.resolution, self.queue = start, until, resolution, queue
        size = SIZES[resolution]
        first, last = micros(start) // size, micros(until) // size
        self.periods = [moment(n * size) for n in range(first, last + 1)]
        self.counts: dict[datetime, list[Series]] = {}
        self.sketches: dict[datetime, list[Sketches]] = {}
        for at, series in differences(snapshots).items():
            self.counts.setdefault(self._period(at), []).append(self._of_queue(series))
        for at, found in sketches.items():
            self.sketches.setdefault(self._period(at), []).append(self._of_queue(found))
        self.depths = self._depths(snapshots)

    def _period(self, at: datetime) -> datetime:
        size = SIZES[self.resolution]
        return moment(micros(at) // size * size)

    def _of_queue(self, series: Mapping[Key, T]) -> dict[Key, T]:
        if self.queue is None:
            return dict(series)
        return {key: one for key, one in series.items() if key[0] == self.queue}

    def _depths(self, snapshots: Mapping[datetime, Snapshot]) -> dict[datetime, Series]:
        """The last known depths in each period. Nothing changed where there is no snapshot."""
        at_end: dict[datetime, Series] = {}
        for at, snapshot in snapshots.items():
            at_end[self._period(at)] = self._of_queue(snapshot.after)
        first = next(iter(snapshots.values()))
        known, depths = self._of_queue(first.before), {}
        for period in self.periods:
            known = at_end.get(period, known)
            depths[period] = known
        return depths

    def keys(self) -> set[Key]:
        found = {key for many in self.counts.values() for series in many for key in series}
        return found | {key for many in self.sketches.values() for series in many for key in series}

    def point(self, period: datetime, keys: frozenset[Key]) -> tuple[Counts, list[tuple[Key, Sketch]]]:
        """The counts and the sketches of these series in one period."""
        counts = added(one for series in self.counts.get(period, ()) for key, one in series.items() if key in keys)
        depth = added(one for key, one in self.depths[period].items() if key in keys)
        sketches = [
            (key, one) for series in self.sketches.get(period, ()) for key, one in series.items() if key in keys
        ]
        return replace(counts, waiting=depth.waiting, running=depth.running), sketches


def _trends(window: _Window, by: By) -> Trends:
    everything = frozenset(window.keys())
    figures, points = _figures(window, everything)
    groups = []
    for name, keys in _groups(window, by, everything):
        of_group, group_points = _figures(window, keys)
        target = wait_target(next(iter(keys))[2]) if by == "priority" else None
        groups.append(TrendGroup(name=name, target=target, figures=of_group, points=group_points))
    return Trends(
        since=window.start,
        until=window.until,
        resolution=window.resolution,
        by=by,
        queue=window.queue,
        figures=figures,
        points=points,
        groups=groups,
    )


def _groups(window: _Window, by: By, keys: Iterable[Key]) -> list[tuple[str, frozenset[Key]]]:
    """The series of each group: priorities by urgency, the others by name. Where there are too many groups, the ones
    with the fewest jobs are put together as `*`."""
    name_of: Callable[[Key], str] = {
        "queue": lambda key: key[0],
        "task": lambda key: key[1],
        "priority": lambda key: Priority(key[2]).name.lower(),
    }[by]
    members: dict[str, set[Key]] = {}
    for key in sorted(keys, key=lambda key: (key[2], key) if by == "priority" else (0, key)):
        members.setdefault(name_of(key), set()).add(key)
    names = list(members) if by == "priority" else sorted(members)
    most = max(min(MOST_CELLS // len(window.periods), MOST_GROUPS), 10)
    if len(names) > most:
        jobs = _jobs(window)
        busiest = sorted(names, key=lambda name: -sum(jobs.get(key, 0) for key in members[name]))[: most - 1]
        kept = set(busiest) - {OTHER}
        rest = {key for name in names if name not in kept for key in members[name]}
        names = [*(name for name in names if name in kept), OTHER]
        members[OTHER] = rest
    return [(name, frozenset(members[name])) for name in names]


def _jobs(window: _Window) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for many in window.counts.values():
        for series in many:
            for key, counts in series.items():
                found[key] = found.get(key, 0) + counts.submitted + counts.completed
    return found


def _figures(window: _Window, keys: frozenset[Key]) -> tuple[TrendFigures, list[TrendPoint]]:
    """The figures of these series, over the whole time and in each period."""
    all_counts, all_sketches, points = [], [], []
    last = NO_COUNTS
    for period in window.periods:
        last, sketches = window.point(period, keys)
        points.append(TrendPoint(at=period, **_values(last, sketches)))
        all_counts.append(last)
        all_sketches += sketches
    together = replace(added(all_counts), waiting=last.waiting, running=last.running)
    return TrendFigures(**_values(together, all_sketches)), points


def _values(counts: Counts, sketches: list[tuple[Key, Sketch]]) -> dict[str, Any]:
    sketch = merged(one for _, one in sketches)
    targeted = merged(one for key, one in sketches if wait_target(key[2]) is not None)
    with_target = sum(targeted.waits.values())
    return {
        **{name: getattr(counts, name) for name in _COPIED},
        "average_wait": _mean(counts.waited_for, counts.waited),
        "average_run": _mean(counts.ran_for, counts.completed - counts.cached),
        "saved": timedelta(microseconds=counts.saved_for),
        **{f"wait_p{n}": timedelta(seconds=quantile(sketch.waits, n / 100)) for n in (50, 95, 99)},
        **{f"run_p{n}": timedelta(seconds=quantile(sketch.runs, n / 100)) for n in (50, 95, 99)},
        "target_met": round(targeted.met / with_target, 4) if with_target else None,
    }


_COPIED: Final = tuple(name for name in Counts.__struct_fields__ if name in TrendFigures.__struct_fields__)


def _mean(took: int, n: int) -> timedelta:
    return timedelta(microseconds=took // n) if n else ZERO

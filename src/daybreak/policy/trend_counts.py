"""Trends: how often something happened, as differences of the store's exact totals.

A snapshot holds the totals of every series `before` and `after` a minute or an hour. What happened in a period is its
last `after` minus its first `before`, so the counts of adjacent periods add up to the totals.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from daybreak.policy.trends import Key

_NOT_FAILED: Final = frozenset({"completed", "cancelled"})
T = TypeVar("T")


class Counts(Struct, array_like=True, frozen=True):
    """Of one series. `failed` leaves out the jobs that expired or were shed. `retries` are attempts after a job's
    first, `retries_failed` those of them that did not complete. `timeouts` are attempts that exceeded their time limit
    or hung. `cached` are completed jobs that did not run, because their result was known or on its way; they would have
    run `saved_for` microseconds together. `waited` counts the first attempts, which waited `waited_for` microseconds
    together; completed attempts ran `ran_for` microseconds together. All of these only grow; `waiting` and `running`
    are jobs at the end."""

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
    saved_for: int = 0
    waited: int = 0
    waited_for: int = 0
    ran_for: int = 0
    waiting: int = 0
    running: int = 0


_FIELDS: Final = Counts.__struct_fields__
_GROWING: Final = len(_FIELDS) - 2
NO_COUNTS: Final = Counts()

Series = dict[Key, Counts]


class Snapshot(Struct, frozen=True):
    """`at` is when `after` was read, in microseconds since 1970. A series that `before` lacks had no counts then."""

    at: int
    after: Series
    before: Series


@functools.lru_cache(maxsize=512)
def _fields_of(what: str) -> tuple[tuple[int, ...], int | None]:
    """Which fields a total adds its `n` to, and which one its `took`."""
    first, *rest = what.split() or [""]
    counted, took = [], None
    if first == "failed":
        reason = rest[0] if rest else ""
        counted.append(reason if reason in {"expired", "shed"} else "failed")
    elif first in {"submitted", "completed", "cancelled", "lost", "waited"}:
        counted.append(first)
    elif first in {"cached", "followed"}:
        counted += ["completed", "cached"]
        took = "saved_for"
    if first == "completed":
        took = "ran_for"
    elif first == "waited":
        took = "waited_for"
    if "again" in rest:
        counted.append("retries")
        if first not in _NOT_FAILED:
            counted.append("retries_failed")
    if "late" in rest or "hung" in rest:
        counted.append("timeouts")
    return tuple(_FIELDS.index(name) for name in counted), None if took is None else _FIELDS.index(took)


class Sums:
    """Adds up totals and depths per series."""

    def __init__(self) -> None:
        self._of: dict[Key, list[int]] = {}

    def add_total(self, key: Key, what: str, n: int, took: int) -> None:
        fields, took_field = _fields_of(what)
        if not fields:
            return
        row = self._row(key)
        for field in fields:
            row[field] += n
        if took_field is not None:
            row[took_field] += took

    def add_depth(self, key: Key, *, is_running: bool, n: int) -> None:
        self._row(key)[_GROWING + is_running] += n

    def _row(self, key: Key) -> list[int]:
        row = self._of.get(key)
        if row is None:
            row = self._of[key] = [0] * len(_FIELDS)
        return row

    def series(self) -> Series:
        return {key: Counts(*row) for key, row in sorted(self._of.items())}


def added(counts: Iterable[Counts]) -> Counts:
    """All of these as one."""
    sums = [0] * len(_FIELDS)
    for one in counts:
        for field, n in enumerate(astuple(one)):
            sums[field] += n
    return Counts(*sums)


def widened(known: Snapshot | None, fresh: Snapshot) -> Snapshot:
    """A snapshot of a longer period that ends with `fresh`: it begins where the known one began. A count that the known
    one has and `fresh` lacks stays, because counts only grow."""
    if known is None:
        return fresh
    after = {key: raised(known.after.get(key, NO_COUNTS), counts) for key, counts in fresh.after.items()}
    return Snapshot(max(known.at, fresh.at), {**known.after, **after}, known.before)


def raised(one: Counts, other: Counts) -> Counts:
    """The greater of every count that grows, and the depths of `other`."""
    a, b = astuple(one), astuple(other)
    return Counts(*map(max, a[:_GROWING], b[:_GROWING]), *b[_GROWING:])


def differences(snapshots: Mapping[T, Snapshot]) -> dict[T, Series]:
    """What happened in each period of these, given in the order of time.

    Each count is compared with the highest one so far, not with the snapshot before it: clocks that differ, or that
    were set back, bring snapshots out of order, and nothing may count twice. So all differences together are exactly
    the highest counts minus those before the first period."""
    reached: dict[Key, Counts] | None = None
    found: dict[T, Series] = {}
    for period, snapshot in snapshots.items():
        if reached is None:
            reached = dict(snapshot.before)
        found[period] = {}
        for key, counts in snapshot.after.items():
            highest = reached.get(key, NO_COUNTS)
            reached[key] = raised(highest, counts)
            found[period][key] = _difference(highest, reached[key])
    return found


def _difference(before: Counts, after: Counts) -> Counts:
    a, b = astuple(before), astuple(after)
    return Counts(*(m - n for n, m in zip(a[:_GROWING], b[:_GROWING], strict=True)), *b[_GROWING:])

"""Trends: sketches of waits and runs per minute and hour, and the wait targets.

A sketch counts durations by class. Each class is a tenth longer than the one before (`policy.durations`), and a
quantile is the geometric middle of its class, so it is less than 5 % from the exact value. Two sketches are merged by
adding their counts, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from msgspec import Struct

from daybreak.core.units import Priority, bucket, span
from daybreak.policy.durations import class_of, longest_in

MINUTE: Final = span(timedelta(minutes=1))
HOUR: Final = span(timedelta(hours=1))
DAY: Final = span(timedelta(days=1))
MINUTES_KEPT: Final = timedelta(hours=48)
HOURS_KEPT: Final = timedelta(days=30)
MAX_SERIES: Final = 200  # in one record
MAX_FOLDED: Final = 100  # series of task `*` beyond them, one per queue and priority
OTHER: Final = "*"

WAIT_TARGETS: Final[Mapping[Priority, timedelta | None]] = {
    Priority.EMERGENCY: timedelta(minutes=1),
    Priority.CRITICAL: timedelta(minutes=1),
    Priority.HIGH: timedelta(minutes=5),
    Priority.NORMAL: timedelta(minutes=30),
    Priority.LOW: timedelta(hours=2),
    Priority.BACKGROUND: None,
}

_TARGET_MICROS: Final = tuple(
    None if (target := WAIT_TARGETS[bucket(level)]) is None else span(target) for level in range(11)
)
_BUCKETS: Final = tuple(bucket(level).value for level in range(11))
_LOWEST: Final = class_of(0.0)
_CLASSES: Final = 300  # to either side of a second
_MIDDLE: Final = math.sqrt(1.1)
_PER_E: Final = 1 / math.log(1.1)
_SECOND: Final = -math.log(1e6) * _PER_E

Key = tuple[str, str, int]  # queue, task, and the value of a named priority
T = TypeVar("T")


def series_key(queue: str, task: str, priority: int) -> Key:
    """The series to which a job belongs. Priorities between two names belong to the name that counts them."""
    return queue, task, _BUCKETS[priority]


def wait_target(priority: int) -> timedelta | None:
    """How long a job of this priority should wait at most; None where there is no target."""
    return WAIT_TARGETS[bucket(priority)]


def admitted(series: Mapping[Key, T], key: Key) -> Key:
    """The key under which a series is kept beside these. When they are full, a new series is counted as task `*` of its
    queue; when there are too many queues, as task `*` of queue `*`."""
    if key in series or len(series) < MAX_SERIES:
        return key
    queue, _, priority = key
    folded = (queue, OTHER, priority)
    if folded in series or len(series) < MAX_SERIES + MAX_FOLDED:
        return folded
    return OTHER, OTHER, priority


class Sketch(Struct, array_like=True):
    """Waits of first attempts and runs of all attempts, by class, with their sums in microseconds. `met` counts the
    waits that were within the target of their priority, exactly."""

    waits: dict[int, int] = {}
    waited: int = 0
    met: int = 0
    runs: dict[int, int] = {}
    ran: int = 0

    def add_wait(self, micros: int, priority: int) -> None:
        """A job of this priority waited so long for its first attempt."""
        at = _class_of(micros)
        waits = self.waits
        waits[at] = waits.get(at, 0) + 1
        self.waited += micros
        target = _TARGET_MICROS[priority]
        if target is None or micros <= target:
            self.met += 1

    def add_run(self, micros: int) -> None:
        """An attempt ran so long."""
        at = _class_of(micros)
        runs = self.runs
        runs[at] = runs.get(at, 0) + 1
        self.ran += micros

    def merge(self, other: Sketch) -> None:
        for mine, more in ((self.waits, other.waits), (self.runs, other.runs)):
            for at, n in more.items():
                mine[at] = mine.get(at, 0) + n
        self.waited += other.waited
        self.met += other.met
        self.ran += other.ran

    @property
    def is_sound(self) -> bool:
        """Whether these numbers can have been counted."""
        counts = (*self.waits.items(), *self.runs.items())
        return min(self.waited, self.met, self.ran) >= 0 and all(abs(at) < _CLASSES and n > 0 for at, n in counts)


Sketches = dict[Key, Sketch]


def _class_of(micros: int) -> int:
    """`durations.class_of` for microseconds, with less arithmetic: it runs once for each settlement."""
    if micros <= 1:
        return _LOWEST
    return math.ceil(math.log(micros) * _PER_E + _SECOND)


def merge_into(target: Sketches, more: Mapping[Key, Sketch]) -> None:
    """Add every series of `more` to `target`, which stays within its bounds. `more` is not changed."""
    for key, sketch in more.items():
        kept = admitted(target, key)
        if kept not in target:
            target[kept] = Sketch()
        target[kept].merge(sketch)


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """All of these as one."""
    together = Sketch()
    for sketch in sketches:
        together.merge(sketch)
    return together


def quantile(classes: Mapping[int, int], share: float) -> float:
    """The duration that this share did not exceed, in seconds, less than 5 % from the exact one; 0 where there is
    none."""
    wanted, so_far = share * sum(classes.values()), 0
    for at in sorted(classes):
        so_far += classes[at]
        if so_far >= wanted:
            return class_middle(at)
    return 0.0


def class_middle(at: int) -> float:
    """The duration that stands for a class, in seconds."""
    if at <= _LOWEST:
        return 0.0
    return longest_in(at) / _MIDDLE


def at_most(classes: Mapping[int, int], bounds: Iterable[float]) -> list[int]:
    """How many durations did not exceed each bound (seconds, rising): the buckets of a cumulative histogram. A class is
    counted at the first bound that is not below its middle."""
    known = sorted(classes.items())
    counts, so_far, next_class = [], 0, 0
    for bound in bounds:
        while next_class < len(known) and class_middle(known[next_class][0]) <= bound:
            so_far += known[next_class][1]
            next_class += 1
        counts.append(so_far)
    return counts

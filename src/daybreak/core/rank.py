"""Rank: the one order in which the jobs of a queue are claimed; and the order in which queues take turns.

fifo    band = priority, then the sequence number that the store gave at insert: strict, most urgent first.
aging   one band, order = arrival + priority x patience: a job that has waited `patience` longer ranks equal to a job
        that is one priority more urgent, so nothing starves. The order of a job never changes while it waits, which
        keeps the index static: a job of priority p is overtaken only by jobs of priority q < p that arrive within
        (p - q) x patience after it, never later.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from daybreak.core.model import QueueSettings
from daybreak.core.units import span


class Rank(NamedTuple):
    """The position of a job in its queue. Jobs with smaller ranks are claimed first."""

    band: int
    order: int
    seq: int


def rank_of(settings: QueueSettings, priority: int, arrived: int, seq: int) -> Rank:
    """The rank of a job. `arrived` is in the store's steady time, so a clock that is set back reorders nothing."""
    if settings.discipline == "aging":
        return Rank(0, arrived + priority * span(settings.patience), seq)
    return Rank(priority, 0, seq)


def urgency(settings: QueueSettings, priority: int, order: int, steady: int) -> int:
    """The urgency of a queue's first job compared with other queues' first jobs: its priority, less its aging."""
    if settings.discipline == "aging":
        return max(0, -((steady - order) // max(1, span(settings.patience))))
    return priority


def passed_over_for(patience: timedelta, priority: int, by: int = 0) -> timedelta:
    """The bound of `aging`: a job of priority `by` that arrives later than this after a job of `priority` does not
    overtake it."""
    return max(0, priority - by) * patience


# Weighted round-robin between queues whose first jobs are equally urgent: the k-th job taken from a queue of weight w
# has the virtual time k / w, and the smallest goes first. With this scale every weight up to 16 divides exactly.
_TIME_SCALE = 720_720


def virtual_time(served: int, weight: int) -> int:
    """The virtual time of a queue's next job, of which the claimant has already had `served` jobs."""
    return (served + 1) * _TIME_SCALE // max(1, weight)

"""The one order in which the jobs of a queue are claimed, and the one in which queues take turns.

fifo    band = priority, then the sequence the store gave at insert: strict, most urgent first.
aging   one band, order = arrival + priority x patience: a job that has waited `patience` longer stands level with
        one that is a priority more urgent, so nothing starves. The order never changes while a job waits, which keeps
        the index static: a job of priority p is passed over only by jobs of priority q < p that arrive within
        (p - q) x patience after it, never later.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from daybreak.core.model import QueueSettings
from daybreak.core.units import span


class Rank(NamedTuple):
    band: int
    order: int
    seq: int


def rank_of(settings: QueueSettings, priority: int, arrived: int, seq: int) -> Rank:
    """Where a job stands in its queue. `arrived` is the store's steady time, so a clock set back reorders nothing."""
    if settings.discipline == "aging":
        return Rank(0, arrived + priority * span(settings.patience), seq)
    return Rank(priority, 0, seq)


def urgency(settings: QueueSettings, priority: int, order: int, steady: int) -> int:
    """How urgent the head of a queue is beside the heads of other queues: its priority, less what it has aged."""
    if settings.discipline == "aging":
        return max(0, -((steady - order) // max(1, span(settings.patience))))
    return priority


def passed_over_for(patience: timedelta, priority: int, by: int = 0) -> timedelta:
    """The bound that `aging` states: how long after it a more urgent job may still arrive and go first."""
    return max(0, priority - by) * patience


# Weighted round-robin between queues whose heads are equally urgent: the k-th job taken from a queue of weight w has
# the virtual time k / w, smallest goes first. The scale makes every weight up to 16 divide exactly.
_TURN_SCALE = 720_720


def virtual_time(served: int, weight: int) -> int:
    """The virtual time of a queue's next job, `served` being how many the claimant has had from it."""
    return (served + 1) * _TURN_SCALE // max(1, weight)

"""The health of a resource: how it did lately, and when its retries must be limited.

Outcomes are counted with exponential decay: the weight of an outcome halves every ten seconds, and shrinks further when
many newer ones arrive. No list of outcomes is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from daybreak.core.model import NO_HEALTH, Health

HALF_LIFE: Final = timedelta(seconds=10)
MAX_WEIGHT: Final = 100.0  # the total weight of all outcomes, so that a resource that failed 1,000 times recovers soon
SPARE_FOR: Final = timedelta(seconds=30)  # renewed with every report while the resource fails
MIN_FAILURES: Final = 10.0  # the weight of failures below which a resource never counts as failing
FAILS_BELOW: Final = 0.8  # the share of successes
WORKS_FROM: Final = 0.9
# The prior of a resource that nobody has used: two successes and one failure. Retry delays are then as written.
_UNKNOWN: Final = (2.0, 1.0)


def next_health(health: Health, outcomes: Iterable[bool], now: datetime) -> Health:
    """The health after these outcomes: True for a success, False for a transient failure."""
    decayed = _decayed(health, now)
    outcomes = list(outcomes)
    good = decayed.good + sum(outcomes)
    bad = decayed.bad + len(outcomes) - sum(outcomes)
    scale = min(1.0, MAX_WEIGHT / (good + bad)) if good + bad else 1.0
    after = Health(good=round(good * scale, 3), bad=round(bad * scale, 3), at=now)
    if _is_failing(after, health):
        return msgspec.structs.replace(after, spare_for=SPARE_FOR)
    return after


def success(health: Health, now: datetime) -> float:
    """The estimated share of attempts that succeed, between 0 and 1."""
    decayed = _decayed(health, now)
    good, bad = decayed.good + _UNKNOWN[0], decayed.bad + _UNKNOWN[1]
    return good / (good + bad)


def is_calm(health: Health) -> bool:
    """Whether nothing failed lately: then successes need not be reported."""
    return health.bad < 0.1 and not health.spare_for


def _is_failing(after: Health, before: Health) -> bool:
    """Whether the resource counts as failing. The bound has hysteresis: a failing resource must succeed clearly more
    often, not only a little, before it counts as working again."""
    if after.bad < MIN_FAILURES:
        return False
    bound = WORKS_FROM if before.spare_for else FAILS_BELOW
    return after.good < bound * (after.good + after.bad)


def _decayed(health: Health, now: datetime) -> Health:
    if health.at is None:
        return NO_HEALTH
    left = 0.5 ** (max(now - health.at, timedelta()) / HALF_LIFE)
    return Health(good=health.good * left, bad=health.bad * left)

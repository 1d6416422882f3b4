"""How a resource did lately, and when its retries must be few.

The older an outcome, the less it weighs: half after ten seconds, and less for all that came since. Nobody keeps a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from daybreak.core.model import NO_HEALTH, Health

HALF_LIFE: Final = timedelta(seconds=10)
MAX_WEIGHT: Final = 100.0  # outcomes, by weight: what failed a thousand times is soon trusted again, too
SPARE_FOR: Final = timedelta(seconds=30)  # and again with every outcome that is told, while it fails
ENOUGH: Final = 10.0  # failures, by weight: fewer say nothing
FAILS_BELOW: Final = 0.8
WORKS_FROM: Final = 0.9
# What is believed of one that nobody has used: two successes and a failure. Retries then wait as long as they say.
_UNKNOWN: Final = (2.0, 1.0)


def next_health(health: Health, heard: Iterable[bool], now: datetime) -> Health:
    """Its health once these were heard: True for a success, False for a transient failure."""
    faded = _faded(health, now)
    outcomes = list(heard)
    good = faded.good + sum(outcomes)
    bad = faded.bad + len(outcomes) - sum(outcomes)
    scale = min(1.0, MAX_WEIGHT / (good + bad)) if good + bad else 1.0
    told = Health(good=round(good * scale, 3), bad=round(bad * scale, 3), at=now)
    return msgspec.structs.replace(told, spare_for=SPARE_FOR) if _fails(told, health) else told


def success(health: Health, now: datetime) -> float:
    """The share of tries that succeed, between 0 and 1, as far as it is known."""
    faded = _faded(health, now)
    good, bad = faded.good + _UNKNOWN[0], faded.bad + _UNKNOWN[1]
    return good / (good + bad)


def is_calm(health: Health) -> bool:
    """Whether nothing failed lately: then successes need not be told."""
    return health.bad < 0.1 and not health.spare_for


def _fails(told: Health, before: Health) -> bool:
    """Once it fails it must do well, not only a little better, before it is trusted again."""
    if told.bad < ENOUGH:
        return False
    bound = WORKS_FROM if before.spare_for else FAILS_BELOW
    return told.good < bound * (told.good + told.bad)


def _faded(health: Health, now: datetime) -> Health:
    if health.at is None:
        return NO_HEALTH
    left = 0.5 ** (max(now - health.at, timedelta()) / HALF_LIFE)
    return Health(good=health.good * left, bad=health.bad * left)

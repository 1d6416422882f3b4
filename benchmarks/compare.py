"""Finds rows that became slower, compared with a bare reference of the same run, because disks and machines differ.

The rule: a row has lost when, of its ratios to its yardstick,
    the highest of now is below the lowest recorded (the intervals do not even touch), and
    the median of now is more than a tenth below the recorded median.
With five repeats on both sides chance alone does the first once in 252 times. A row that seems to have lost is measured
a second time, and counts as lost only when it loses again. A row that was recorded and now has no figure has lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from benchmarks.stats import Interval

SLACK: Final = 0.10


class Loss(NamedTuple):
    row: str
    why: str


def losses(recorded: Mapping[str, Interval], now: Mapping[str, Interval]) -> list[Loss]:
    """The rows that became slower, the worst first; rows without a figure come before all others."""
    missing = [Loss(row, "recorded, but without a figure now") for row in recorded if row not in now]
    lost = [row for row, was in recorded.items() if row in now and has_lost(was, now[row])]
    lost.sort(key=lambda row: now[row].median / recorded[row].median)
    return missing + [Loss(row, _sentence(recorded[row], now[row])) for row in lost]


def has_lost(was: Interval, now: Interval) -> bool:
    return now.high < was.low and now.median < was.median * (1 - SLACK)


def _sentence(was: Interval, now: Interval) -> str:
    return (
        f"{now.median:.3g} x its yardstick ({now.low:.3g} to {now.high:.3g}), recorded {was.median:.3g} "
        f"({was.low:.3g} to {was.high:.3g}): {1 - now.median / was.median:.0%} slower"
    )

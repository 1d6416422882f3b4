"""Small drawings that the server renders as SVG elements: a sparkline, and the bars of a job's attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from daybreak.api.job_history import Attempt

WIDTH: Final = 100  # of every drawing, in its own units; the page scales it
HEIGHT: Final = 20
MIN_BAR: Final = 0.5  # a shorter bar could not be seen


class Bar(Struct, frozen=True):
    """One attempt: where its wait and its run begin, and how long they are, in parts of 100."""

    attempt: Attempt
    wait_from: float
    wait: float
    run_from: float
    run: float


def sparkline(values: Sequence[float]) -> str:
    """The points of a line through the values, from 0 at the bottom to the largest at the top; empty without values."""
    highest = max(values, default=0)
    if highest <= 0 or len(values) < 2:
        return ""
    step = WIDTH / (len(values) - 1)
    return " ".join(
        f"{n * step:.1f},{HEIGHT - 1 - value / highest * (HEIGHT - 2):.1f}" for n, value in enumerate(values)
    )


def attempt_bars(attempts: Sequence[Attempt], submitted_at: datetime, now: datetime) -> list[Bar]:
    """The attempts on one axis, from the submission to the end of the last one, or to now while it runs."""
    if not attempts:
        return []
    end = attempts[-1].ended_at or now
    whole = max((end - submitted_at).total_seconds(), 0.001)

    def at(when: datetime) -> float:
        return min(max((when - submitted_at).total_seconds() / whole, 0.0), 1.0) * WIDTH

    bars: list[Bar] = []
    waits_from = submitted_at
    for attempt in attempts:
        ended_at = attempt.ended_at or now
        start, stop = at(attempt.started_at), at(ended_at)
        wait_from = at(waits_from)
        bars.append(Bar(attempt, wait_from, start - wait_from, min(start, WIDTH - MIN_BAR), max(stop - start, MIN_BAR)))
        waits_from = ended_at
    return bars

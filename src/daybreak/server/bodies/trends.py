"""Trends: statistics by minute, hour or day."""

from __future__ import annotations

from daybreak.server.bodies.base import Answer


class TrendFigures(Answer, frozen=True):
    """What happened in a period. Times are seconds. Counts and averages are exact, quantiles within 5 %. `waiting` and
    `running` are jobs at its end. `target_met` is the share of jobs that waited no longer than the target of their
    priority. `cached` of the completed jobs did not run, because their result was known or on its way, which `saved`
    so much run time."""

    submitted: int
    completed: int
    failed: int
    expired: int
    shed: int
    cancelled: int
    retries: int
    retries_failed: int
    timeouts: int
    lost: int
    cached: int
    saved: float
    waiting: int
    running: int
    average_wait: float
    wait_p50: float
    wait_p95: float
    wait_p99: float
    average_run: float
    run_p50: float
    run_p95: float
    run_p99: float
    target_met: float | None


class TrendPoint(TrendFigures, frozen=True):
    """The figures of the minute, hour or day that begins at this instant."""

    at: str


class TrendGroup(Answer, frozen=True):
    """One queue, priority or task; `*` stands for all that are not listed. `target` is the wait target of a
    priority."""

    name: str
    target: float | None
    figures: TrendFigures
    points: list[TrendPoint]


class TrendsBody(Answer, frozen=True):
    """The figures from `since` to `until`, in all and by queue, priority or task."""

    since: str
    until: str
    resolution: str
    by: str
    queue: str | None
    figures: TrendFigures
    points: list[TrendPoint]
    groups: list[TrendGroup]

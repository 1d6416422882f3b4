"""Statistics."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from daybreak.server.bodies.base import Answer, Name, Past, Request
from daybreak.server.bodies.trends import TrendsBody


class QueueParameter(Request, frozen=True):
    """Selects one queue; without it, all queues."""

    queue: Name | None = None


class StatsParameters(Request, frozen=True):
    """Selects one queue; without it, all queues. With `since`, the response also has the trends since then, at most 30
    days; `by` and `resolution` have an effect only with `since`."""

    queue: Name | None = None
    since: Past | None = None
    by: Literal["queue", "priority", "task"] = "queue"
    resolution: Literal["minute", "hour", "day"] | None = None


class QueueFigures(Answer, frozen=True):
    """The totals of a queue since the store was created, and what waits now. Times are seconds."""

    queue: str | None
    submitted: int
    processed: int
    completed: int
    timeouts: int
    errors: int
    shed: int
    cancelled: int
    shortened: int
    waiting: int
    running: int
    average_wait: float
    average_run: float
    by_priority: dict[str, int]
    batches: int
    last_at: str | None
    last_ran: float
    cached: int
    followed: int
    saved: float


class TimeoutFigures(Answer, frozen=True):
    total: int
    by_kind: dict[str, int]
    adjustments: int
    escalations: int
    average: float
    active: int


class RetryFigures(Answer, frozen=True):
    total: int
    successful: int
    failed: int
    breaker_trips: int
    spared: int
    adapted: int
    by_strategy: dict[str, int]
    average_run: float
    most_attempts: int


class AdaptiveFigures(Answer, frozen=True):
    """The durations of one operation over the last day, and the limit that follows from them. Times are seconds."""

    subject: str
    seen: int
    late: int
    median: float
    p99: float
    base: float
    limit: float
    adjustments: int


class BatchCallFigures(Answer, frozen=True):
    """The calls of a batch task: how many, for how many jobs in total and on average. Times are seconds."""

    task: str
    calls: int
    elements: int
    average_size: float
    average_run: float


class StatsBody(Answer, frozen=True):
    """The fields of `daybreak stats --json`. `trends` is set if `since` was given."""

    queue: QueueFigures
    timeouts: TimeoutFigures
    retries: RetryFigures
    adaptive: list[AdaptiveFigures]
    batch_calls: list[BatchCallFigures]
    queues: list[QueueFigures]
    trends: TrendsBody | UnsetType = UNSET


class RetriesBody(Answer, frozen=True):
    queue: str | None
    retries: RetryFigures


class TimeoutsBody(Answer, frozen=True):
    """`adaptive` has the measured durations behind the adaptive limits."""

    queue: str | None
    timeouts: TimeoutFigures
    adaptive: list[AdaptiveFigures]

"""Statistics."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from daybreak.server.bodies.base import Answer, Name, Past, Request
from daybreak.server.bodies.trends import TrendsBody


class QueueParameter(Request, frozen=True):
    """Figures of one queue, or of all."""

    queue: Name | None = None


class StatsParameters(Request, frozen=True):
    """Figures of one queue, or of all. With `since`, the answer has trends from then on, at most 30 days; `by` and
    `resolution` count only then."""

    queue: Name | None = None
    since: Past | None = None
    by: Literal["queue", "priority", "task"] = "queue"
    resolution: Literal["minute", "hour", "day"] | None = None


class QueueFigures(Answer, frozen=True):
    """What has happened in a queue since the store was made, and what waits now. Times are seconds."""

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
    """How long something took over the last day, and the limit that follows from it. Times are seconds."""

    subject: str
    seen: int
    late: int
    median: float
    p99: float
    base: float
    limit: float
    adjustments: int


class StatsBody(Answer, frozen=True):
    """The fields of `daybreak stats --json`. `trends` is there if `since` was given."""

    queue: QueueFigures
    timeouts: TimeoutFigures
    retries: RetryFigures
    adaptive: list[AdaptiveFigures]
    queues: list[QueueFigures]
    trends: TrendsBody | UnsetType = UNSET


class RetriesBody(Answer, frozen=True):
    queue: str | None
    retries: RetryFigures


class TimeoutsBody(Answer, frozen=True):
    """`adaptive` is what the adaptive limits have learnt."""

    queue: str | None
    timeouts: TimeoutFigures
    adaptive: list[AdaptiveFigures]

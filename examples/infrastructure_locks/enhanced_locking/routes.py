"""The document's HTTP routes, with the names of its Go types: durations in nanoseconds, priorities as numbers.

They are served beside Daybreak's own routes, and need the role `read` like those."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may
from enhanced_locking.queueing import LOCKS, QueueConfig
from enhanced_locking.status import adaptive_data, queue_status, retry_stats, timeout_metrics
from enhanced_locking.weights import LEVELS, number_of

ZERO_TIME: Final = "0001-01-01T00:00:00Z"  # Go's zero value of a time
KIND_NAMES: Final = {
    "acquisition": "LockAcquisitionTimeout",
    "wait": "QueueWaitTimeout",
    "renewal": "RenewalTimeout",
    "connection": "ConnectionTimeout",
    "operation": "OperationTimeout",
    "execution": "ExecutionTimeout",
    "hang": "HangTimeout",
}
STRATEGY_NAMES: Final = {
    "fixed": "FixedDelay",
    "exponential": "ExponentialBackoff",
    "linear": "LinearBackoff",
    "jittered": "JitteredExponential",
    "adaptive": "AdaptiveBackoff",
}


class GoType(Struct, frozen=True, kw_only=True, rename="pascal"):
    """A struct whose JSON has the field names of Go."""


class QueueMetrics(GoType, frozen=True):
    total_enqueued: int
    total_processed: int
    total_timeouts: int
    total_errors: int
    current_queue_size: int
    average_wait_time: int
    priority_distribution: dict[str, int]
    batches_processed: int
    last_processing_time: str
    processing_duration: int


class TimeoutMetrics(GoType, frozen=True):
    total_timeouts: int
    timeouts_by_type: dict[str, int]
    adaptive_adjustments: int
    escalation_events: int
    average_resolution: int
    current_active_timeouts: int


class EnhancedRetryMetrics(GoType, frozen=True):
    total_retries: int
    successful_retries: int
    failed_retries: int
    circuit_breaker_trips: int
    rate_limited_retries: int
    adaptive_adjustments: int
    strategy_distribution: dict[str, int]
    average_retry_latency: int
    max_retry_attempts: int


class AdaptiveTimeout(GoType, frozen=True):
    """The document shows no type for this route: these are the fields that calculateAdaptiveTimeout reads."""

    timeout_type: str
    resource_id: str = field(name="ResourceID")
    success_count: int
    timeout_count: int
    success_rate: float
    base_timeout: int
    current_timeout: int
    adaptive_adjustments: int


def routes_of(config: QueueConfig) -> Routes:
    """The four routes of a queue with this config."""
    routes = Routes("enhanced locking", prefix="/api")
    everything = may("read", needs_all_queues=True)

    @routes.get("/queue/status", may("read"), answer=QueueMetrics, summary="The queue of lock requests")
    async def show_queue_status(call: Call[None, None]) -> Any:
        """The totals of the store, over all processes."""
        call.check_queue(LOCKS)
        if not config.enable_metrics:
            raise Problem(NOT_FOUND, "the metrics of this queue are switched off: QueueConfig(enable_metrics=False)")
        return go_json(QueueMetrics, queue_metrics(await queue_status(call.server.app, config)))

    @routes.get("/timeout/metrics", everything, answer=TimeoutMetrics, summary="Time limits")
    async def show_timeout_metrics(call: Call[None, None]) -> Any:
        """The totals of the store, over all processes."""
        return go_json(TimeoutMetrics, timeouts_by_name(await timeout_metrics(call.server.app)))

    @routes.get("/retry/stats", everything, answer=EnhancedRetryMetrics, summary="Retries")
    async def show_retry_stats(call: Call[None, None]) -> Any:
        """The totals of the store, over all processes."""
        return go_json(EnhancedRetryMetrics, retries_by_name(await retry_stats(call.server.app)))

    @routes.get("/adaptive/data", everything, answer=list[AdaptiveTimeout], summary="What adaptive limits learnt")
    async def show_adaptive_data(call: Call[None, None]) -> Any:
        """One row per limit, over the last day."""
        return [go_json(AdaptiveTimeout, adaptive_row(row)) for row in await adaptive_data(call.server.app)]

    return routes


def go_json(kind: type[GoType], fields: dict[str, Any]) -> Any:
    return msgspec.to_builtins(kind(**fields))


def queue_metrics(status: dict[str, Any]) -> dict[str, Any]:
    by_name = status["priority_distribution"]
    return {
        **status,
        "average_wait_time": nanoseconds(status["average_wait_time"]),
        "processing_duration": nanoseconds(status["processing_duration"]),
        "last_processing_time": status["last_processing_time"] or ZERO_TIME,
        "priority_distribution": {str(number_of(level)): by_name[level.name.lower()] for level in LEVELS},
    }


def timeouts_by_name(metrics: dict[str, Any]) -> dict[str, Any]:
    by_kind = {KIND_NAMES[kind]: n for kind, n in metrics["timeouts_by_type"].items()}
    return {**metrics, "timeouts_by_type": by_kind, "average_resolution": nanoseconds(metrics["average_resolution"])}


def retries_by_name(stats: dict[str, Any]) -> dict[str, Any]:
    return {
        **stats,
        "strategy_distribution": {STRATEGY_NAMES[name]: n for name, n in stats["strategy_distribution"].items()},
        "average_retry_latency": nanoseconds(stats["average_retry_latency"]),
    }


def adaptive_row(row: dict[str, Any]) -> dict[str, Any]:
    kind, _, resource = row["subject"].partition(" ")
    in_time = row["seen"] - row["timeouts"]
    return {
        "timeout_type": KIND_NAMES.get(kind, kind),
        "resource_id": resource,
        "success_count": in_time,
        "timeout_count": row["timeouts"],
        "success_rate": in_time / row["seen"] if row["seen"] else 0.0,
        "base_timeout": nanoseconds(row["base_timeout"]),
        "current_timeout": nanoseconds(row["current_timeout"]),
        "adaptive_adjustments": row["adjustments"],
    }


def nanoseconds(seconds: float) -> int:
    """A duration as Go writes it."""
    return round(seconds * 1e9)

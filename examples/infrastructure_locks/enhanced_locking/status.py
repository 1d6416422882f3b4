"""The data of the four status pages: durations in seconds, instants as text.

The store counts every number in the same transaction as the change: the numbers are exact, cover all processes, and
start when the store was created."""

from __future__ import annotations

from typing import Any

from daybreak import BadInput, Daybreak
from enhanced_locking.queueing import LOCKS, QueueConfig
from enhanced_locking.timeouts import TimeoutManager
from enhanced_locking.weights import LEVELS, Weights


async def queue_status(app: Daybreak, config: QueueConfig | None = None) -> dict[str, Any]:
    """/api/queue/status. BadInput if the config says enable_metrics=False."""
    config = config or QueueConfig()
    if not config.enable_metrics:
        raise BadInput("the metrics of this queue are switched off: QueueConfig(enable_metrics=False)")
    stats = (await app.astats(LOCKS)).queue
    weights = Weights(config.priority_weights)
    waiting = {level.name.lower(): 0 for level in LEVELS}
    for rank, n in stats.by_priority.items():
        waiting[weights.level(rank).name.lower()] += n
    return {
        "total_enqueued": stats.submitted,
        "total_processed": stats.processed,
        "total_timeouts": stats.timeouts,
        "total_errors": stats.errors,
        "current_queue_size": stats.waiting,
        "average_wait_time": stats.average_wait.total_seconds(),
        "priority_distribution": waiting,
        "batches_processed": stats.batches,
        "last_processing_time": None if stats.last_at is None else stats.last_at.isoformat(),
        "processing_duration": stats.last_ran.total_seconds(),
    }


async def timeout_metrics(app: Daybreak, timeouts: TimeoutManager | None = None) -> dict[str, Any]:
    """/api/timeout/metrics. With the manager of this process, also the operations that run under its limits now."""
    stats = (await app.astats()).timeouts
    return {
        "total_timeouts": stats.total,
        "timeouts_by_type": stats.by_kind,
        "adaptive_adjustments": stats.adjustments,
        "escalation_events": stats.escalations,
        "average_resolution": stats.average.total_seconds(),
        "current_active_timeouts": stats.active + (len(timeouts.active) if timeouts else 0),
    }


async def retry_stats(app: Daybreak) -> dict[str, Any]:
    """/api/retry/stats"""
    stats = (await app.astats()).retries
    return {
        "total_retries": stats.total,
        "successful_retries": stats.successful,
        "failed_retries": stats.failed,
        "circuit_breaker_trips": stats.breaker_trips,
        "rate_limited_retries": stats.spared,
        "adaptive_adjustments": stats.adapted,
        "strategy_distribution": stats.by_strategy,
        "average_retry_latency": stats.average_run.total_seconds(),
        "max_retry_attempts": stats.most_attempts,
    }


async def adaptive_data(app: Daybreak) -> list[dict[str, Any]]:
    """/api/adaptive/data: for every operation with a limit, its durations of the last day and the resulting limit."""
    return [
        {
            "subject": one.subject,
            "seen": one.seen,
            "timeouts": one.late,
            "median": one.median.total_seconds(),
            "p99": one.p99.total_seconds(),
            "base_timeout": one.base.total_seconds(),
            "current_timeout": one.limit.total_seconds(),
            "adjustments": one.adjustments,
        }
        for one in (await app.astats()).adaptive
    ]

"""Enhanced locking for Terraform pull requests, in the words of its original document, over Daybreak's own.

priorities  who goes first          queueing  locks and their line      timeouts  how long things may take
weights     numbers and weights     batching  requests that go together  retries   retries, breakers, rates
status      figures of the store    routes    the document's HTTP routes, beside Daybreak's server

Nothing here queues, times or counts: that is done by the store, for all processes together.
"""

from enhanced_locking.priorities import Project, PullRequest, determine_priority, lock_name, only_on_call
from enhanced_locking.queueing import PriorityQueue, QueueConfig, QueueItem, QueueResult
from enhanced_locking.retries import (
    CircuitBreakerConfig,
    EnhancedRetryManager,
    RateLimiter,
    RateLimiterConfig,
    RetryPolicy,
    RetryStrategy,
    aggressive_retry_policy,
    default_retry_policy,
)
from enhanced_locking.status import adaptive_data, queue_status, retry_stats, timeout_metrics
from enhanced_locking.timeouts import (
    Timeout,
    TimeoutConfig,
    TimeoutManager,
    TimeoutResult,
    TimeoutType,
    calculate_adaptive_timeout,
)
from enhanced_locking.weights import number_of, priority_of

__all__ = [
    "CircuitBreakerConfig",
    "EnhancedRetryManager",
    "PriorityQueue",
    "Project",
    "PullRequest",
    "QueueConfig",
    "QueueItem",
    "QueueResult",
    "RateLimiter",
    "RateLimiterConfig",
    "RetryPolicy",
    "RetryStrategy",
    "Timeout",
    "TimeoutConfig",
    "TimeoutManager",
    "TimeoutResult",
    "TimeoutType",
    "adaptive_data",
    "aggressive_retry_policy",
    "calculate_adaptive_timeout",
    "default_retry_policy",
    "determine_priority",
    "lock_name",
    "number_of",
    "only_on_call",
    "priority_of",
    "queue_status",
    "retry_stats",
    "timeout_metrics",
]

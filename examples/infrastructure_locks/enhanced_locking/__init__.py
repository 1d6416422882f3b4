"""Enhanced locking for Terraform pull requests: the names of the original document on top of Daybreak's API.

priorities  who gets a lock first   queueing  locks and their waiters   timeouts  adaptive time limits
weights     numbers and weights     batching  batches of requests       retries   retries, breakers, rates
status      statistics of the store routes    the document's HTTP routes, beside Daybreak's server

This package does not queue, time or count by itself: the store does, for all processes together.
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

"""EnhancedRetryManager: operations with retries, and with a breaker and a rate limit that all processes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from daybreak import BadInput, Breaker, Context, Daybreak, Resource, Retry, Task

QUEUE: Final = "retries"

Operation = Callable[..., Any]  # called with the number of the attempt, from 1, and further arguments


class RetryStrategy(StrEnum):
    FIXED_DELAY = "fixed"
    EXPONENTIAL_BACKOFF = "exponential"
    LINEAR_BACKOFF = "linear"
    JITTERED_EXPONENTIAL = "jittered"
    ADAPTIVE_BACKOFF = "adaptive"


@dataclass(frozen=True, kw_only=True)
class CircuitBreakerConfig:
    """An open breaker stays open for `timeout`, then it lets probes through. Failures more than `reset_timeout` apart
    are not added up."""

    failure_threshold: int = 5
    success_threshold: int = 3
    timeout: timedelta = timedelta(seconds=30)
    reset_timeout: timedelta = timedelta(seconds=60)

    @property
    def breaker(self) -> Breaker:
        return Breaker(
            failures=self.failure_threshold,
            successes=self.success_threshold,
            open_for=self.timeout,
            forget_after=self.reset_timeout,
        )


@dataclass(frozen=True, kw_only=True)
class RateLimiterConfig:
    """`refill_rate` is in tokens per second."""

    max_tokens: int = 10
    refill_rate: float = 1.0

    @property
    def rate(self) -> str:
        return f"{self.refill_rate:f}/s"


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    max_attempts: int = 3
    strategy: RetryStrategy = RetryStrategy.JITTERED_EXPONENTIAL
    base_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)
    backoff_multiplier: float = 2.0
    jitter_percent: float = 0.1
    circuit_breaker: CircuitBreakerConfig | None = None
    rate_limiter: RateLimiterConfig | None = None

    @property
    def retry(self) -> Retry:
        return Retry(
            strategy=self.strategy.value,
            attempts=self.max_attempts,
            delay=self.base_delay,
            cap=self.max_delay,
            factor=self.backoff_multiplier,
            jitter=self.jitter_percent,
        )

    def resource(self, name: str) -> Resource:
        """The resource that all attempts of an operation share."""
        return Resource(
            name,
            rate=None if self.rate_limiter is None else self.rate_limiter.rate,
            burst=None if self.rate_limiter is None else self.rate_limiter.max_tokens,
            breaker=None if self.circuit_breaker is None else self.circuit_breaker.breaker,
        )


def default_retry_policy() -> RetryPolicy:
    return RetryPolicy(circuit_breaker=CircuitBreakerConfig(), rate_limiter=RateLimiterConfig())


def aggressive_retry_policy() -> RetryPolicy:
    return RetryPolicy(
        max_attempts=5,
        strategy=RetryStrategy.ADAPTIVE_BACKOFF,
        base_delay=timedelta(milliseconds=500),
        max_delay=timedelta(seconds=60),
        backoff_multiplier=1.5,
        jitter_percent=0.2,
    )


class EnhancedRetryManager:
    """An operation is a task, and each execution is a job. So attempts, delays and breakers survive this process and
    are counted. While a breaker is open, executions that need its resource fail at once."""

    def __init__(self, policy: RetryPolicy, app: Daybreak) -> None:
        self.policy = policy
        self.app = app
        self._known: dict[str, tuple[Operation, Task[..., Any]]] = {}

    async def execute_with_retry(self, name: str, operation: Operation, *given: Any) -> Any:
        """Run `operation(attempt, *given)` and return its result. Raises JobFailed when its attempts are used up, or at
        once for a permanent error. A name belongs to one function, because any process may run the next attempt."""
        job = await self._task(name, operation).asubmit(list(given))
        await self.app.awork(until=job, isolation="thread", processes=1)
        return await job

    def _task(self, name: str, operation: Operation) -> Task[..., Any]:
        known, task = self._known.get(name, (None, None))
        if task is None:
            task = self._register(name, operation)
            self._known[name] = (operation, task)
        elif known != operation:
            raise BadInput(f"{name!r} is the name of another operation: give what differs as arguments")
        return task

    def _register(self, name: str, operation: Operation) -> Task[..., Any]:
        def attempt(ctx: Context, given: list[Any]) -> Any:
            return operation(ctx.attempt, *given)

        register = self.app.task(
            name=name, queue=QUEUE, retry=self.policy.retry, resource=self.policy.resource(name), fail_fast=True
        )
        return register(attempt)


class RateLimiter:
    """A token bucket that all processes share, by the clock of the store."""

    def __init__(self, config: RateLimiterConfig, app: Daybreak, name: str) -> None:
        self._resource = app.resource(name)
        self._config = config
        self._is_set = False

    async def allow(self) -> bool:
        """Take a token. Returns False if there is none."""
        if not self._is_set:
            await self._resource.aset(rate=self._config.rate, burst=self._config.max_tokens)
            self._is_set = True
        return await self._resource.aallow()

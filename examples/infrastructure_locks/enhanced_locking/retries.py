"""EnhancedRetryManager: operations that are tried again, with a breaker and a pace that all processes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from daybreak import BadInput, Breaker, Context, Daybreak, Resource, Retry, Task

QUEUE: Final = "retries"

Operation = Callable[..., Any]  # of the number of the attempt, from 1, and whatever else it is given


class RetryStrategy(StrEnum):
    FIXED_DELAY = "fixed"
    EXPONENTIAL_BACKOFF = "exponential"
    LINEAR_BACKOFF = "linear"
    JITTERED_EXPONENTIAL = "jittered"
    ADAPTIVE_BACKOFF = "adaptive"


@dataclass(frozen=True, kw_only=True)
class CircuitBreakerConfig:
    """A breaker is open for `timeout`, and then probes. Failures that are longer apart than `reset_timeout` do not add
    up."""

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
        """What all tries of an operation share."""
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
    """An operation is a task, and each execution a job: so tries, waits and breakers outlive this process, and are
    counted. While a breaker is open, what needs it fails at once."""

    def __init__(self, policy: RetryPolicy, app: Daybreak) -> None:
        self.policy = policy
        self.app = app
        self._known: dict[str, tuple[Operation, Task[..., Any]]] = {}

    async def execute_with_retry(self, name: str, operation: Operation, *given: Any) -> Any:
        """What `operation(attempt, *given)` returns. JobFailed once its attempts are used up, or at once for an error
        that another try cannot help. A name stands for one function, since any process may make the next try."""
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
    """A token bucket, one for all processes, by the clock of the store."""

    def __init__(self, config: RateLimiterConfig, app: Daybreak, name: str) -> None:
        self._resource = app.resource(name)
        self._config = config
        self._is_set = False

    async def allow(self) -> bool:
        """Whether there is a token; if so, it is used."""
        if not self._is_set:
            await self._resource.aset(rate=self._config.rate, burst=self._config.max_tokens)
            self._is_set = True
        return await self._resource.aallow()

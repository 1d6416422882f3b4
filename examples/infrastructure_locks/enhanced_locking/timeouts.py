"""TimeoutManager: limits that follow the measured durations, and grow after timeouts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from daybreak import Daybreak, Retry, TooLate
from daybreak.api.locks.time_limit import TimeLimit
from daybreak.policy.durations import NO_DURATIONS, WINDOW, Hour, add_hours, hour_with, with_hour
from daybreak.policy.timeouts import BOUNDS, MAX_ESCALATIONS, PACE, LimitRules, adapted, check_rules


class TimeoutType(StrEnum):
    LOCK_ACQUISITION = "acquisition"
    QUEUE_WAIT = "wait"
    RENEWAL = "renewal"
    CONNECTION = "connection"
    OPERATION = "operation"


@dataclass(frozen=True, kw_only=True)
class TimeoutConfig:
    """`adaptation_factor` is how fast a limit moves from its base to what was measured. `history_window` is from one
    hour to 24 hours."""

    base_lock_timeout: timedelta = timedelta(seconds=30)
    base_queue_timeout: timedelta = timedelta(minutes=5)
    base_renewal_timeout: timedelta = timedelta(seconds=10)
    base_connection_timeout: timedelta = timedelta(seconds=5)
    base_operation_timeout: timedelta = timedelta(seconds=60)

    enable_adaptive_timeout: bool = True
    min_timeout_multiplier: float = BOUNDS[0]
    max_timeout_multiplier: float = BOUNDS[1]
    adaptation_factor: float = PACE
    history_window: timedelta = WINDOW

    enable_escalation: bool = True
    escalation_threshold: int = 3
    escalation_multiplier: float = 1.5
    max_escalation_level: int = MAX_ESCALATIONS

    def __post_init__(self) -> None:
        check_rules(self.rules)

    @property
    def rules(self) -> LimitRules:
        return LimitRules(
            adaptive=self.enable_adaptive_timeout,
            lowest=self.min_timeout_multiplier,
            highest=self.max_timeout_multiplier,
            pace=self.adaptation_factor,
            window=self.history_window,
            escalate=self.escalation_multiplier if self.enable_escalation else 1.0,
            escalate_after=self.escalation_threshold,
            max_escalations=self.max_escalation_level,
        )

    def base(self, kind: TimeoutType) -> timedelta:
        match kind:
            case TimeoutType.LOCK_ACQUISITION:
                return self.base_lock_timeout
            case TimeoutType.QUEUE_WAIT:
                return self.base_queue_timeout
            case TimeoutType.RENEWAL:
                return self.base_renewal_timeout
            case TimeoutType.CONNECTION:
                return self.base_connection_timeout
            case TimeoutType.OPERATION:
                return self.base_operation_timeout


@dataclass(frozen=True)
class TimeoutResult:
    success: bool
    duration: timedelta
    error: TooLate | None = None


class TimeoutManager:
    """The measured durations are in the store, so all processes share them."""

    def __init__(self, config: TimeoutConfig, app: Daybreak) -> None:
        self.config = config
        self.app = app
        self.active: dict[str, Timeout] = {}

    async def create_timeout(self, kind: TimeoutType, resource: str, user: str) -> Timeout:
        """Start a time limit. The time is running when this returns."""
        rules = self.config.rules
        limit = self.app.limit_time(
            kind.value,
            resource,
            base=self.config.base(kind),
            adaptive=rules.adaptive,
            bounds=(rules.lowest, rules.highest),
            pace=rules.pace,
            window=rules.window,
            escalate=rules.escalate,
            escalate_after=rules.escalate_after,
            max_escalations=rules.max_escalations,
        )
        timeout = Timeout(limit, user, self.active)
        await timeout.has_begun.wait()
        return timeout

    async def cancel_timeout(self, id: str) -> None:  # noqa: A002 - the document's word
        """Drop a time limit without recording a duration: a cancelled operation does not show how long it takes."""
        if (timeout := self.active.get(id)) is not None:
            await timeout.cancel()

    def retry_policy(self, kind: TimeoutType, attempts: int) -> Retry:
        """The document's delays between attempts: a quarter of the base, then 1.5 times the delay before each time."""
        quarter, factor = self.config.base(kind) / 4, self.config.escalation_multiplier
        longest = quarter * factor**self.config.max_escalation_level
        return Retry(strategy="exponential", attempts=attempts, delay=quarter, factor=factor, cap=longest)


class Timeout:
    """`complete` reports that the operation is done; `result` waits for that or for the timeout."""

    def __init__(self, limit: TimeLimit, user: str, active: dict[str, Timeout]) -> None:
        self.id = str(uuid.uuid4())
        self.user = user
        self.has_begun = asyncio.Event()
        self._limit = limit
        self._is_done = asyncio.Event()
        self._active = active
        self._running = asyncio.create_task(self._run())

    @property
    def limit(self) -> timedelta:
        return timedelta(seconds=self._limit.seconds)

    def complete(self) -> None:
        self._is_done.set()

    async def result(self) -> TimeoutResult:
        return await asyncio.shield(self._running)

    async def cancel(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> TimeoutResult:
        try:
            async with self._limit:
                self._active[self.id] = self
                self.has_begun.set()
                await self._is_done.wait()
                took = self.limit - timedelta(seconds=self._limit.remaining)
        except TooLate as trouble:
            return TimeoutResult(False, self.limit, trouble)
        finally:
            self._active.pop(self.id, None)
            self.has_begun.set()
        return TimeoutResult(True, took)


def calculate_adaptive_timeout(
    base: timedelta, took: Iterable[timedelta], config: TimeoutConfig | None = None
) -> timedelta:
    """The limit that follows from these durations. It is the base while there are few. Then it is twice the 99th
    percentile, at least the longest completed duration, and between the smallest and the largest multiple of the base.
    A duration of the largest multiple counts as a timeout."""
    rules = (config or TimeoutConfig()).rules
    seen = Hour()
    for one in took:
        seen = add_hours(seen, hour_with(one.total_seconds(), late=one >= rules.highest * base))
    return adapted(base, with_hour(NO_DURATIONS, seen, datetime.now(UTC)), rules)

"""The retry policy of jobs, around code that is no job."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from daybreak.api.locks.slots import ResourceHandle, Slot
from daybreak.core.errors import LeaseLost, StoreError
from daybreak.core.model import Done, Failed, Outcome
from daybreak.policy.retry import TYPICAL_SUCCESS, delay_for, may_retry, parse_retry
from daybreak.worker.child.failures import failure_of
from daybreak.worker.supervisor.breaker_reports import BreakerReports
from daybreak.worker.supervisor.health_reports import HealthReports
from daybreak.worker.supervisor.outcome_signals import OutcomeSignals

_log = logging.getLogger("daybreak")

F = TypeVar("F", bound=Callable[..., Any])


class Retrying:
    """A decorator. What a task's errors mean holds here, too: permanent ones are raised at once, the last as it is.

    With a resource each try holds a slot of it, and its breaker hears how it went."""

    def __init__(self, retry: object, resource: ResourceHandle | None = None) -> None:
        self._retry = parse_retry(retry)
        self._resource = resource
        self._healths: HealthReports | None = None
        self._success = TYPICAL_SUCCESS

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def try_async(*args: Any, **kwargs: Any) -> Any:
                attempt = 1
                while True:
                    try:
                        return await self._atry(function, args, kwargs)
                    except Exception as error:
                        wait = self._wait_after(attempt, error, function)
                        if wait is None:
                            raise
                    await asyncio.sleep(wait.total_seconds())
                    attempt += 1

            return try_async  # type: ignore[return-value]

        @functools.wraps(function)
        def try_it(*args: Any, **kwargs: Any) -> Any:
            attempt = 1
            while True:
                try:
                    return self._try(function, args, kwargs)
                except Exception as error:
                    wait = self._wait_after(attempt, error, function)
                    if wait is None:
                        raise
                time.sleep(wait.total_seconds())
                attempt += 1

        return try_it  # type: ignore[return-value]

    # -- one try -------------------------------------------------------------------------------------------------------

    async def _atry(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._resource is None:
            return await function(*args, **kwargs)
        returned: list[Any] = []
        try:
            async with self._resource.slot(wait=None) as slot:
                try:
                    returned.append(await function(*args, **kwargs))
                except Exception as error:
                    await self._tell(slot, Failed(failure_of(error)))
                    raise
                await self._tell(slot, Done())
        except (StoreError, LeaseLost) as error:
            self._forgive(error, returned)
        return returned[0]

    def _try(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._resource is None:
            return function(*args, **kwargs)
        returned: list[Any] = []
        try:
            with self._resource.slot(wait=None) as slot:
                try:
                    returned.append(function(*args, **kwargs))
                except Exception as error:
                    slot.portal.run(self._tell(slot, Failed(failure_of(error))))
                    raise
                slot.portal.run(self._tell(slot, Done()))
        except (StoreError, LeaseLost) as error:
            self._forgive(error, returned)
        return returned[0]

    def _forgive(self, error: Exception, returned: list[Any]) -> None:
        """What was done is not done again because its slot could not be given back."""
        if not returned:
            raise error
        _log.warning("a slot of resource %s: %s", self._resource and self._resource.name, error)

    async def _tell(self, slot: Slot, outcome: Outcome) -> None:
        """The breaker is told before the slot is given to the next."""
        await slot.sessions.here(self._hear(slot, outcome))

    async def _hear(self, slot: Slot, outcome: Outcome) -> None:
        lease, store = slot.lease, (await slot.sessions.client()).store
        if lease is None:
            return
        # What an error means is said by the policy of these tries, not by that of the job that holds the slot.
        options = replace(lease.spec.options, retry=self._retry)
        attempt = replace(lease, spec=replace(lease.spec, options=options))
        signals = OutcomeSignals().collect([(attempt, outcome)])
        await BreakerReports(store, slot.sessions.world, lease.worker).report(signals)
        if self._healths is None or self._healths.store is not store:
            self._healths = HealthReports(store, slot.sessions.world)
        await self._healths.report(signals)
        self._success = self._healths.success(attempt)

    def _wait_after(self, attempt: int, error: Exception, function: Callable[..., Any]) -> timedelta | None:
        """None: it is not tried again."""
        failure = failure_of(error)
        if attempt >= self._retry.attempts or not may_retry(failure, self._retry):
            return None
        chance = random.random()  # noqa: S311 - to spread retries
        wait = delay_for(self._retry, attempt, chance, failure.retry_after, success=self._success)
        name, seconds = getattr(function, "__name__", "it"), wait.total_seconds()
        _log.info(
            "%s: attempt %d/%d failed: %s; retrying in %.1f s", name, attempt, self._retry.attempts, failure, seconds
        )
        return wait

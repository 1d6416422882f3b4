"""The retry policy of jobs, for code that is not a job."""

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
    """A decorator that retries a function. Errors mean the same as in tasks: a permanent error is raised at once, and
    the error of the last attempt is raised unchanged.

    With a resource, each attempt holds one of its slots, and its outcome is reported to the resource's breaker."""

    def __init__(self, retry: object, resource: ResourceHandle | None = None) -> None:
        self._retry = parse_retry(retry)
        self._resource = resource
        self._health: HealthReports | None = None
        self._success = TYPICAL_SUCCESS

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def retry_async(*args: Any, **kwargs: Any) -> Any:
                attempt = 1
                while True:
                    try:
                        return await self._aattempt(function, args, kwargs)
                    except Exception as error:
                        wait = self._wait_after(attempt, error, function)
                        if wait is None:
                            raise
                    await asyncio.sleep(wait.total_seconds())
                    attempt += 1

            return retry_async  # type: ignore[return-value]

        @functools.wraps(function)
        def retry_sync(*args: Any, **kwargs: Any) -> Any:
            attempt = 1
            while True:
                try:
                    return self._attempt(function, args, kwargs)
                except Exception as error:
                    wait = self._wait_after(attempt, error, function)
                    if wait is None:
                        raise
                time.sleep(wait.total_seconds())
                attempt += 1

        return retry_sync  # type: ignore[return-value]

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _aattempt(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._resource is None:
            return await function(*args, **kwargs)
        returned: list[Any] = []
        try:
            async with self._resource.slot(wait=None) as slot:
                try:
                    returned.append(await function(*args, **kwargs))
                except Exception as error:
                    await self._report(slot, Failed(failure_of(error)))
                    raise
                await self._report(slot, Done())
        except (StoreError, LeaseLost) as error:
            self._raise_unless_returned(error, returned)
        return returned[0]

    def _attempt(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._resource is None:
            return function(*args, **kwargs)
        returned: list[Any] = []
        try:
            with self._resource.slot(wait=None) as slot:
                try:
                    returned.append(function(*args, **kwargs))
                except Exception as error:
                    slot.portal.run(self._report(slot, Failed(failure_of(error))))
                    raise
                slot.portal.run(self._report(slot, Done()))
        except (StoreError, LeaseLost) as error:
            self._raise_unless_returned(error, returned)
        return returned[0]

    def _raise_unless_returned(self, error: Exception, returned: list[Any]) -> None:
        """If the function returned, it is not retried only because its slot could not be released."""
        if not returned:
            raise error
        _log.warning("could not release a slot of resource %s: %s", self._resource and self._resource.name, error)

    async def _report(self, slot: Slot, outcome: Outcome) -> None:
        """Report to the breaker before the slot is released."""
        await slot.sessions.here(self._report_signals(slot, outcome))

    async def _report_signals(self, slot: Slot, outcome: Outcome) -> None:
        lease, store = slot.lease, (await slot.sessions.client()).store
        if lease is None:
            return
        # This policy decides what an error means, not the policy of the job that represents the slot.
        options = replace(lease.spec.options, retry=self._retry)
        attempt = replace(lease, spec=replace(lease.spec, options=options))
        signals = OutcomeSignals().collect([(attempt, outcome)])
        await BreakerReports(store, slot.sessions.world, lease.worker).report(signals)
        if self._health is None or self._health.store is not store:
            self._health = HealthReports(store, slot.sessions.world)
        await self._health.report(signals)
        self._success = self._health.success(attempt)

    def _wait_after(self, attempt: int, error: Exception, function: Callable[..., Any]) -> timedelta | None:
        """The delay before the next attempt; None if there is no next attempt."""
        failure = failure_of(error)
        if attempt >= self._retry.attempts or not may_retry(failure, self._retry):
            return None
        chance = random.random()  # noqa: S311 - to spread retries
        wait = delay_for(self._retry, attempt, chance, failure.retry_after, success=self._success)
        name, seconds = getattr(function, "__name__", "function"), wait.total_seconds()
        _log.info(
            "%s: attempt %d/%d failed: %s; retrying in %.1f s", name, attempt, self._retry.attempts, failure, seconds
        )
        return wait

"""The retry policy of jobs, around code that is no job."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from daybreak.locks.slots import ResourceHandle
from daybreak.policy.retry import delay_for, may_retry, retrying
from daybreak.worker.failures import failure_of

_log = logging.getLogger("daybreak")

F = TypeVar("F", bound=Callable[..., Any])


class Retrying:
    """A decorator. What a task's errors mean holds here, too: permanent ones are raised at once, the last as it is."""

    def __init__(self, retry: object, resource: ResourceHandle | None = None) -> None:
        self._retry = retrying(retry)
        self._resource = resource

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def try_async(*args: Any, **kwargs: Any) -> Any:
                attempt = 1
                while True:
                    try:
                        async with self._slot():
                            return await function(*args, **kwargs)
                    except Exception as trouble:
                        wait = self._wait_after(attempt, trouble, function)
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
                    with self._slot():
                        return function(*args, **kwargs)
                except Exception as trouble:
                    wait = self._wait_after(attempt, trouble, function)
                    if wait is None:
                        raise
                time.sleep(wait.total_seconds())
                attempt += 1

        return try_it  # type: ignore[return-value]

    def _slot(self) -> Any:
        return contextlib.nullcontext() if self._resource is None else self._resource.slot(wait=None)

    def _wait_after(self, attempt: int, trouble: Exception, function: Callable[..., Any]) -> timedelta | None:
        """None: it is not tried again."""
        failure = failure_of(trouble)
        if attempt >= self._retry.attempts or not may_retry(failure, self._retry):
            return None
        wait = delay_for(self._retry, attempt, random.random(), failure.retry_after)  # noqa: S311 - to spread retries
        name, seconds = getattr(function, "__name__", "it"), wait.total_seconds()
        _log.info(
            "%s: attempt %d/%d failed %s, retrying in %.1f s", name, attempt, self._retry.attempts, failure, seconds
        )
        return wait

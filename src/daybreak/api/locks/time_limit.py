"""Adaptive time limits for code that is not a job."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from daybreak.api.portal import Portal
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.duration_stats import LOAD_TIMEOUT
from daybreak.core.errors import BadInput, StoreError, TooLate
from daybreak.core.units import ZERO, duration
from daybreak.policy.admit import check_name
from daybreak.policy.timeouts import DEFAULT_RULES, LimitRules, base_of, check_rules

_log = logging.getLogger("daybreak")

F = TypeVar("F", bound=Callable[..., Any])


class TimeLimit:
    """A time limit for a block. `async with` cancels the block at its next await. Blocking code cannot be cancelled: in
    a `with` block, pass `seconds` to the functions that you call, or call `check()` between two steps."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        kind: str,
        resource: str,
        *,
        base: object = None,
        rules: LimitRules = DEFAULT_RULES,
    ) -> None:
        check_name("resource", resource)
        self.kind, self.resource = kind, resource
        default = base_of(kind)
        self.base = default if base is None else duration(base, "base")
        if self.base <= ZERO:
            raise BadInput("base must be longer than 0")
        self.seconds = self.base.total_seconds()
        self._rules = check_rules(rules)
        self._find_sessions = sessions
        self._in_use = threading.Lock()
        self._started_at = 0.0
        self._timeout: asyncio.Timeout | None = None

    @property
    def _subject(self) -> str:
        return f"{self.kind} {self.resource}"

    @property
    def _sessions(self) -> Sessions:
        return self._find_sessions()

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<time limit of {self._subject}, {self.seconds:.3g} s>"

    @property
    def remaining(self) -> float:
        """The seconds that are left, at least 0."""
        return max(self._started_at + self.seconds - time.monotonic(), 0.0)

    def check(self) -> None:
        """Raise TooLate if no time is left."""
        if not self.remaining:
            raise self._too_late()

    def _too_late(self) -> TooLate:
        base = self.base.total_seconds()
        return TooLate(self.kind, self.resource, self.seconds, base, adaptive=self._rules.adaptive)

    @on_store_loop
    async def _find(self) -> timedelta:
        """Read the adaptive limit. If the store does not reply, return the base: the block itself may not need the
        store."""
        try:
            client = await self._sessions.client_within(LOAD_TIMEOUT)
        except StoreError as error:
            _log.warning("could not read the durations of %s, using the base limit: %s", self._subject, error)
            client = None
        if client is None:
            return self.base
        return await client.durations.limit(self._subject, self.base, self._rules)

    @on_store_loop
    async def _note(self, seconds: float, late: bool) -> None:
        """Record a duration. It is written to the store in the background; without an open store it is dropped."""
        client = self._sessions.client_if_open()
        if client is not None:
            client.durations.note(self._subject, self.base, seconds, late=late, rules=self._rules)
            client.durations.sync_soon()

    # -- context manager -----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        if not self._in_use.acquire(blocking=False):
            raise BadInput(
                f"the time limit of {self._subject} is in use: create one for each use with app.limit_time(...)"
            )

    def __enter__(self) -> Self:
        self._take()
        try:
            self.seconds = self._portal.run(self._find()).total_seconds()
        except BaseException:
            self._in_use.release()
            raise
        self._started_at = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A block that failed before the limit, even by a timeout of its own, does not show how long the work takes.
        took, late = self._took(), not self.remaining
        self._in_use.release()
        if error is None or (late and isinstance(error, Exception)):
            self._portal.run(self._note(took, late))

    async def __aenter__(self) -> Self:
        self._take()
        try:
            self.seconds = (await self._find()).total_seconds()
            self._timeout = asyncio.timeout(self.seconds)
            self._started_at = time.monotonic()
            await self._timeout.__aenter__()
        except BaseException:
            self._in_use.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        timeout, took, too_late = self._timeout, self._took(), self._too_late()
        assert timeout is not None
        self._in_use.release()
        try:
            await timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            await self._note(took, late=True)
            raise too_late from None
        if error is None or timeout.expired():
            await self._note(took, late=timeout.expired())

    def _took(self) -> float:
        return time.monotonic() - self._started_at

    # -- decorator -----------------------------------------------------------------------------------------------------

    def __call__(self, function: F) -> F:
        """Limit every call of an async function."""
        if not inspect.iscoroutinefunction(function):
            raise BadInput(
                f"limit_time is a decorator for async functions: {getattr(function, '__name__', function)!r} blocks, "
                "and cannot be cancelled; write `with app.limit_time(...) as limit:` and use limit.seconds"
            )

        @functools.wraps(function)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            async with self._copy():
                return await function(*args, **kwargs)

        return limited  # type: ignore[return-value]

    def _copy(self) -> TimeLimit:
        return TimeLimit(self._find_sessions, self.kind, self.resource, base=self.base, rules=self._rules)

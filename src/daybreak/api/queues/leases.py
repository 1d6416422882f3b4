"""The handle of a taken item: the right to work on it until it has an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from daybreak import values
from daybreak.api.hooks import Hooks
from daybreak.api.portal import Portal, blocking
from daybreak.api.queues.consumer import QueueConsumer
from daybreak.api.queues.items import data_of
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.core.errors import LeaseLost, StoreError, Suspend, WrongState
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Done, Failed, Failure, HandedBack, Lease, Outcome, Suspended
from daybreak.core.units import clean, duration
from daybreak.store.protocol import Extended
from daybreak.tasks.context import check_fraction
from daybreak.worker.child.failures import failure_of

_log = logging.getLogger("daybreak.queues")


class LeaseHandle:
    """A taken item. Its lease is extended in the background as long as this handle is in use.

    It ends with one outcome: complete, fail, suspend or release. As a context manager: an exception fails the item and
    is raised again; without an exception, leaving the block completes the item, unless it has an outcome already."""

    def __init__(self, sessions: Sessions, consumer: QueueConsumer, hooks: Hooks, lease: Lease) -> None:
        self.lease = lease
        self.id = lease.job
        self.data: Any = data_of(lease.spec.task, lease.spec.args)
        self.attempt = lease.attempt
        self.max_attempts = lease.spec.options.retry.attempts
        self.priority = lease.priority
        self.metadata: dict[str, Any] = decode_meta(lease.spec.meta)
        self.fence = lease.fence
        self.cancelled = False
        self._sessions = sessions
        self._consumer = consumer
        self._hooks = hooks
        self._ended: str | None = None
        self._taken_at = sessions.world.steady()

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<item {self.id}, attempt {self.attempt}/{self.max_attempts}, {self._ended or 'taken'}>"

    # -- outcomes ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def acomplete(self, result: object = None) -> None:
        """Complete the item with this result. LeaseLost if the lease has run out and the item was taken again."""
        await self._end(Done(None if result is None else values.encode(result, "result"), self._ran()))

    complete = blocking(acomplete)

    @on_store_loop
    async def afail(self, error: object, permanent: bool = False, retry_after: object = None) -> None:
        """Fail this attempt; `error` is an exception or a string. The item is retried, not before `retry_after` has
        passed, until its attempts are used up. A permanent failure is not retried."""
        failure = failure_of(error) if isinstance(error, BaseException) else Failure(message=clean(str(error)))
        await self._end(
            Failed(
                msgspec.structs.replace(
                    failure,
                    verdict="permanent" if permanent else failure.verdict or "transient",
                    retry_after=failure.retry_after if retry_after is None else duration(retry_after, "retry_after"),
                ),
                self._ran(),
            )
        )

    fail = blocking(afail)

    @on_store_loop
    async def asuspend(self, reason: str = "") -> None:
        """Suspend the item until someone resumes it with `app.job(id).resume()`. The attempt is not charged."""
        await self._end(Suspended(reason))

    suspend = blocking(asuspend)

    @on_store_loop
    async def arelease(self) -> None:
        """Hand the item back to its place in the queue, uncharged."""
        await self._end(HandedBack())

    release = blocking(arelease)

    @on_store_loop
    async def aprogress(self, fraction: float, message: str = "") -> None:
        """Report progress, from 0 to 1. It is stored when this returns. LeaseLost if the lease has run out and the item
        was taken again."""
        self._refuse_ended()
        check_fraction(fraction)
        store = (await self._sessions.client()).store
        extended = await self._consumer.extend(store, self.lease, float(fraction), clean(str(message)))
        self.on_extended(extended)
        if not extended.held:
            raise LeaseLost(self.id, self.fence)
        self._hooks.progressed(self.lease, float(fraction), clean(str(message)))

    progress = blocking(aprogress)

    @on_store_loop
    async def aextend(self) -> None:
        """Extend the lease once. Only needed if the process was stopped for longer than a lease, because heartbeats
        extend it in the background. LeaseLost if the lease has run out and the item was taken again."""
        self._refuse_ended()
        extended = await self._consumer.extend((await self._sessions.client()).store, self.lease)
        self.on_extended(extended)
        if not extended.held:
            raise LeaseLost(self.id, self.fence)

    extend = blocking(aextend)

    async def _end(self, outcome: Outcome) -> None:
        self._refuse_ended()
        settled = await self._consumer.report((await self._sessions.client()).store, self.lease, outcome)
        self._consumer.drop(self)
        self._ended = settled.settlement.state.value if settled.accepted else "lost"
        if not settled.accepted:
            raise LeaseLost(self.id, self.fence)
        self._hooks.settled(settled)

    def _ran(self) -> float:
        """For how many seconds it was held, which is what this attempt took."""
        return (self._sessions.world.steady() - self._taken_at) / 1_000_000

    def _refuse_ended(self) -> None:
        if self._ended == "lost":
            raise LeaseLost(self.id, self.fence)
        if self._ended is not None:
            raise WrongState(self.id, self._ended, "an attempt has one outcome, and it was already reported")

    def on_extended(self, extended: Extended) -> None:
        """Handle the reply to a heartbeat. `cancelled` becomes True if someone cancelled the item: it will end as
        cancelled, whatever outcome is reported."""
        self.cancelled = self.cancelled or extended.cancel
        if not extended.held and self._ended is None:
            self._ended = "lost"
            self._consumer.drop(self)

    # -- context manager -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            if self._ended in (None, "lost"):
                self.complete()
        elif self._ended is None:
            with self._log_second_error(error):
                self._portal.run(self._sessions.here(self._end(_outcome_of(error))))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            if self._ended in (None, "lost"):
                await self.acomplete()
        elif self._ended is None:
            with self._log_second_error(error):
                await self._sessions.here(self._end(_outcome_of(error)))

    @contextlib.contextmanager
    def _log_second_error(self, error: BaseException) -> Iterator[None]:
        """Log an error of the report, so that the caller gets the block's own error."""
        try:
            yield
        except (LeaseLost, StoreError) as second:
            _log.warning("item %s: could not report its outcome (%r): %s", self.id, error, second)


def _outcome_of(error: BaseException) -> Outcome:
    match error:
        case Suspend():
            return Suspended(str(error))
        case KeyboardInterrupt() | SystemExit() | GeneratorExit() | asyncio.CancelledError():
            return HandedBack()  # the program stops; this is not a failure of the item
        case _:
            return Failed(failure_of(error))

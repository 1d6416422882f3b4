"""An item in hand: the right to work on it, until it has an outcome."""

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
from daybreak.api.queues.heartbeats import QueueHeartbeats
from daybreak.api.queues.items import data_of
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.core.errors import LeaseLost, StoreError, Suspend, WrongState
from daybreak.core.model import Done, Failed, Failure, HandedBack, Lease, Outcome, Suspended
from daybreak.core.units import clean, duration
from daybreak.store.protocol import Extended
from daybreak.tasks.context import check_fraction
from daybreak.worker.child.failures import failure_of

_log = logging.getLogger("daybreak.queues")


class LeaseHandle:
    """One item that was taken, kept alive in the background as long as this handle is in use.

    It ends with one outcome: complete, fail, suspend or release. As a context manager: an exception fails it, and goes
    on; otherwise, where no outcome was given, leaving the block completes it."""

    def __init__(self, sessions: Sessions, taker: QueueHeartbeats, hooks: Hooks, lease: Lease) -> None:
        self.lease = lease
        self.id = lease.job
        self.data: Any = data_of(lease.spec.task, lease.spec.args)
        self.attempt = lease.attempt
        self.max_attempts = lease.spec.options.retry.attempts
        self.priority = lease.priority
        self.metadata = lease.spec.meta
        self.fence = lease.fence
        self.cancelled = False
        self._sessions = sessions
        self._taker = taker
        self._hooks = hooks
        self._ended: str | None = None

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<item {self.id}, attempt {self.attempt}/{self.max_attempts}, {self._ended or 'in hand'}>"

    # -- outcomes ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def acomplete(self, result: object = None) -> None:
        """Done, with this result. LeaseLost if the item is someone else's by now."""
        await self._end(Done(None if result is None else values.encode(result, "result")))

    complete = blocking(acomplete)

    @on_store_loop
    async def afail(self, error: object, permanent: bool = False, retry_after: object = None) -> None:
        """This attempt failed; `error` is an exception or a text. It is tried again, not before `retry_after` has
        passed, until its attempts are used up; not at all if the failure is permanent."""
        failure = failure_of(error) if isinstance(error, BaseException) else Failure(message=clean(str(error)))
        await self._end(
            Failed(
                msgspec.structs.replace(
                    failure,
                    verdict="permanent" if permanent else failure.verdict or "transient",
                    retry_after=failure.retry_after if retry_after is None else duration(retry_after, "retry_after"),
                )
            )
        )

    fail = blocking(afail)

    @on_store_loop
    async def asuspend(self, reason: str = "") -> None:
        """Hold it until someone resumes it: `app.job(id).resume()`. The attempt is not charged."""
        await self._end(Suspended(reason))

    suspend = blocking(asuspend)

    @on_store_loop
    async def arelease(self) -> None:
        """Back into the queue, where it was, uncharged."""
        await self._end(HandedBack())

    release = blocking(arelease)

    @on_store_loop
    async def aprogress(self, fraction: float, message: str = "") -> None:
        """Say how far the work is, from 0 to 1. It is stored when this returns; LeaseLost if the item is someone else's
        by now."""
        self._refuse_ended()
        check_fraction(fraction)
        store = (await self._sessions.client()).store
        answer = await self._taker.extend(store, self.lease, float(fraction), clean(str(message)))
        self.heard(answer)
        if not answer.held:
            raise LeaseLost(self.id, self.fence)
        self._hooks.progressed(self.lease, float(fraction), clean(str(message)))

    progress = blocking(aprogress)

    @on_store_loop
    async def aextend(self) -> None:
        """Keep it for another lease. Needed only where nothing else runs for longer than a lease, as in a program that
        is stopped and continued; LeaseLost if the item is someone else's by now."""
        self._refuse_ended()
        answer = await self._taker.extend((await self._sessions.client()).store, self.lease)
        self.heard(answer)
        if not answer.held:
            raise LeaseLost(self.id, self.fence)

    extend = blocking(aextend)

    async def _end(self, outcome: Outcome) -> None:
        self._refuse_ended()
        settled = await self._taker.report((await self._sessions.client()).store, self.lease, outcome)
        self._taker.let_go(self)
        self._ended = settled.settlement.state.value if settled.accepted else "lost"
        if not settled.accepted:
            raise LeaseLost(self.id, self.fence)
        self._hooks.settled(settled)

    def _refuse_ended(self) -> None:
        if self._ended == "lost":
            raise LeaseLost(self.id, self.fence)
        if self._ended is not None:
            raise WrongState(self.id, self._ended, "an attempt has one outcome, and this one has had it")

    def heard(self, answer: Extended) -> None:
        """A heartbeat was answered. `cancelled`: someone wants this item to stop, and whatever its outcome, it will
        end cancelled."""
        self.cancelled = self.cancelled or answer.cancel
        if not answer.held and self._ended is None:
            self._ended = "lost"
            self._taker.let_go(self)

    # -- as a block ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            if self._ended in (None, "lost"):
                self.complete()
        elif self._ended is None:
            with self._beside(error):
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
            with self._beside(error):
                await self._sessions.here(self._end(_outcome_of(error)))

    @contextlib.contextmanager
    def _beside(self, error: BaseException) -> Iterator[None]:
        """The block's own error is what the caller must hear of."""
        try:
            yield
        except (LeaseLost, StoreError) as worse:
            _log.warning("item %s: its outcome (%r) was not kept: %s", self.id, error, worse)


def _outcome_of(error: BaseException) -> Outcome:
    match error:
        case Suspend():
            return Suspended(str(error))
        case KeyboardInterrupt() | SystemExit() | GeneratorExit() | asyncio.CancelledError():
            return HandedBack()  # whoever works stops; the item is not to blame
        case _:
            return Failed(failure_of(error))

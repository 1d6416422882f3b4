"""Locks: one-slot resources that the caller itself holds, with priority, place in line, lease and fence."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from daybreak.api.locks import lock_job
from daybreak.api.locks.lock_job import Waiter, all_waiters, check_names
from daybreak.api.locks.lock_wait import GIVE_UP_WITHIN, LockWait
from daybreak.api.portal import Portal, blocking
from daybreak.api.queues.heartbeats import taker_of
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, LeaseLost, StoreError
from daybreak.core.model import Lease, Need
from daybreak.core.units import duration, priority
from daybreak.policy.resources import Resource
from daybreak.policy.timeouts import BASES
from daybreak.system import patience
from daybreak.tasks.import_guard import refuse_during_import

_log = logging.getLogger("daybreak.locks")

WAIT: Final = timedelta(minutes=5)
LEASE: Final = timedelta(seconds=10)
SHORTEST: Final = timedelta(milliseconds=200)

F = TypeVar("F", bound=Callable[..., Any])

Held = tuple[str, object]  # the job of a lock, and which thread and task took it

_held_here: contextvars.ContextVar[tuple[Held, ...]] = contextvars.ContextVar("daybreak.locks", default=())


def _who() -> object:
    """This thread and task: what others hold that began in the same block is not held by this one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task) if task is not None else None


def _holds() -> list[str]:
    who = _who()
    return [job for job, holder in _held_here.get() if holder == who]


class Lock:
    """One lock, or several at once: all or none. As a context manager, `with` or `async with`, or as a decorator.

    `fence` is higher than that of everyone who held it before: give it to whatever the lock protects."""

    def __init__(
        self,
        sessions: Callable[[], Sessions],
        names: Sequence[str],
        *,
        priority: object = "normal",  # noqa: A002, RUF100
        wait: object = WAIT,
        lease: object = LEASE,
        on_lost: Callable[[Lock], object] | None = None,
        owner: str | None = None,
    ) -> None:
        self.names = self._named(names)
        self.owner = owner
        self.wait = None if wait is None else duration(wait, "wait")
        self.lease_for = duration(lease, "lease")
        if self.lease_for < SHORTEST:
            raise BadInput(f"lease={lease!r}: a lock is kept for at least {SHORTEST.total_seconds():g} s at a time")
        self.priority = _priority(priority)
        self._find_sessions = sessions
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._id: str | None = None
        self._kept_until = 0.0
        self._held_since = 0.0
        self._renewing: asyncio.Task[None] | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._before: tuple[Held, ...] = ()
        self._pid = 0

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        return check_names(names)

    @property
    def _needs(self) -> tuple[Need, ...]:
        return lock_job.needs_of_locks(self.names)

    _by_time = False  # nobody but a holder frees it

    @property
    def _declared(self) -> list[Resource]:
        return lock_job.resources_of(self.names)

    @property
    def sessions(self) -> Sessions:
        return self._find_sessions()

    _sessions = sessions

    @property
    def portal(self) -> Portal:
        return self.sessions.portal

    _portal = portal

    @property
    def lease(self) -> Lease | None:
        """The right to hold it, while it is held."""
        return self._lease

    def __repr__(self) -> str:
        return f"<lock {', '.join(self.names)}, {'held' if self.is_held else 'not held'}>"

    @property
    def job(self) -> str | None:
        """The job that stands for it: in line, holding, or ended."""
        return self._id

    @property
    def fence(self) -> int:
        if self._lease is None:
            raise BadInput(f"lock {', '.join(self.names)} is not held: its fence comes with it")
        return self._lease.fence

    @property
    def is_held(self) -> bool:
        """Certainly ours: False from when it may have run out, as when the store has been out of reach for too long."""
        return self._lease is not None and time.monotonic() < self._kept_until and self._pid == os.getpid()

    def check(self) -> None:
        """LeaseLost if it may be someone else's by now. For long work, between two steps."""
        if not self.is_held:
            raise LeaseLost(self._id or ", ".join(self.names), self._lease.fence if self._lease else 0)

    # -- taking --------------------------------------------------------------------------------------------------------

    async def aacquire(self) -> Self:
        """Wait for it; LockTimeout if that takes longer than `wait`."""
        await self._take(())
        return self

    acquire = blocking(aacquire)

    async def _take(self, holds: Sequence[str]) -> None:
        try:
            await self._sessions.here(self._acquire(holds))
        except asyncio.CancelledError:
            if self._lease is not None:  # granted in that very moment, on the portal's loop
                self._portal.spawn(self._release())
            raise

    async def _acquire(self, holds: Sequence[str]) -> None:
        refuse_during_import("lock")
        if self._id is not None:
            raise BadInput(f"lock {', '.join(self.names)} is in use: make one for each use, with app.lock(...)")
        sessions = self._sessions
        self._id, self._pid = sessions.new_id(), os.getpid()  # before the first wait: another thread may ask, too
        try:
            client, taker = await sessions.client(), taker_of(sessions)
            taker.begin()  # who died with a lock in hand is found also where no worker runs
            spec = lock_job.spec_for(
                client, self._id, self._needs, holder=f"{taker.id}/{self._id}", owner=self.owner or client.by,
                priority=self.priority,
                wait=self.wait, hold_for=self.lease_for, holds=holds,
            )  # fmt: skip
            waiting = LockWait(client, spec, self.wait, self._declared, by_time=self._by_time)
            self._lease = await waiting.until_granted(sessions.provided)
            self._kept_until = waiting.granted_after + self.lease_for.total_seconds()
            await self._keep_what_was_noticed_late(client, self._lease)
        except BaseException:
            lease, self._lease, self._id, self._kept_until = self._lease, None, None, 0.0
            if lease is not None:  # granted, and not kept: the next need not wait for its lease to run out
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(GIVE_UP_WITHIN):
                        await asyncio.shield(lock_job.give_back(client, lease))
            raise
        self._held_since = time.monotonic()
        self._home = asyncio.get_running_loop()
        self._renewing = self._home.create_task(self._renew(client, self._lease))

    async def _keep_what_was_noticed_late(self, client: Client, lease: Lease) -> None:
        """It may have been granted at any time since the last look, and a part of the lease be gone already."""
        asked_at = time.monotonic()
        if self._kept_until - asked_at > self.lease_for.total_seconds() * 2 / 3:
            return
        lease_for = self.lease_for.total_seconds()
        async with client.durations.limited("renewal of locks", BASES["renewal"], at_most=lease_for):
            if not await lock_job.renew(client, lease, self.lease_for):
                raise LeaseLost(lease.job, lease.fence)
        self._kept_until = asked_at + lease_for

    async def _renew(self, client: Client, lease: Lease) -> None:
        """Until it is lost; that it may be is known when it could not be renewed in time, whatever the cause."""
        lease_for = self.lease_for.total_seconds()
        pause = min(lease_for / 3, max(self._kept_until - time.monotonic() - lease_for / 2, 0))
        while True:
            await asyncio.sleep(pause)
            asked_at = time.monotonic()
            try:
                left = max(self._kept_until - asked_at, 0.05)
                renewal = client.durations.limited("renewal of locks", BASES["renewal"], at_most=left)
                with patience.soon(min(left, 1.0)):
                    async with renewal:
                        held = await lock_job.renew(client, lease, self.lease_for)
            except Exception as error:  # noqa: BLE001 - whatever ails it, the lock is not renewed
                _log.warning("lock %s: it was not renewed: %s", ", ".join(self.names), error or "no answer in time")
                held = time.monotonic() < self._kept_until
                pause = min(lease_for / 3, 0.5, max(self._kept_until - time.monotonic(), 0))
            else:
                pause = lease_for / 3
                if held:
                    self._kept_until = asked_at + lease_for
            if not held:
                self._lost()
                return

    def _lost(self) -> None:
        self._kept_until = 0.0
        _log.error("lock %s was lost: it was taken over or taken away", ", ".join(self.names))
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:  # noqa: BLE001 - the user's own
                _log.exception("lock %s: on_lost failed", ", ".join(self.names))

    # -- giving back ---------------------------------------------------------------------------------------------------

    @on_store_loop
    async def arelease(self) -> None:
        """LeaseLost if it was someone else's by now."""
        await self._release()

    release = blocking(arelease)

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        job, self._id = self._id, None
        renewing, self._renewing = self._renewing, None
        if renewing is not None and self._home is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended, and it with it
                self._home.call_soon_threadsafe(renewing.cancel)
        if self._pid != os.getpid():  # a forked child: it is the parent's
            return
        held_for = time.monotonic() - self._held_since
        if lease is not None and not await lock_job.give_back(await self._sessions.client(), lease, held_for=held_for):
            raise LeaseLost(job or "", lease.fence)

    @on_store_loop
    async def aposition(self) -> int | None:
        """How many stand before it; None once it is held, or not in line."""
        if self._id is None:
            return None
        position = await (await self._sessions.client()).position(self._id)
        return None if position is None else position.ahead

    position = blocking(aposition)

    # -- as a block and as a decorator ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._portal.run(self._sessions.here(self._acquire(_holds())))
        self._entered()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _held_here.set(self._before)
        try:
            self.release()
        except (LeaseLost, StoreError) as worse:
            self._tell_beside(error, worse)

    async def __aenter__(self) -> Self:
        await self._take(_holds())
        self._entered()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _held_here.set(self._before)
        try:
            await self.arelease()
        except (LeaseLost, StoreError) as worse:
            self._tell_beside(error, worse)

    def _entered(self) -> None:
        assert self._id is not None
        self._before = _held_here.get()
        _held_here.set((*self._before, (self._id, _who())))

    def _tell_beside(self, error: BaseException | None, worse: Exception) -> None:
        """The block's own error is what the caller must hear of."""
        if error is None:
            raise worse
        _log.warning("lock %s: %s", ", ".join(self.names), worse)

    def __call__(self, function: F) -> F:
        """Hold it while the function runs."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def hold_async(*args: Any, **kwargs: Any) -> Any:
                async with self._another():
                    return await function(*args, **kwargs)

            return hold_async  # type: ignore[return-value]

        @functools.wraps(function)
        def hold(*args: Any, **kwargs: Any) -> Any:
            with self._another():
                return function(*args, **kwargs)

        return hold  # type: ignore[return-value]

    def _another(self) -> Lock:
        return Lock(
            self._find_sessions, self.names, priority=self.priority, wait=self.wait, lease=self.lease_for,
            on_lost=self._on_lost, owner=self.owner,
        )  # fmt: skip


_priority = priority

__all__ = ["Lock", "Waiter", "all_waiters"]

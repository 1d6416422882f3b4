"""Locks: resources with one slot that the caller itself holds, with a priority, a position in the queue of waiters, a
lease and a fence."""

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
from daybreak.api.locks.lock_wait import LEAVE_TIMEOUT, LockWait
from daybreak.api.portal import Portal, blocking
from daybreak.api.queues.consumer import consumer_of
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
SHORTEST_LEASE: Final = timedelta(milliseconds=200)

F = TypeVar("F", bound=Callable[..., Any])

Held = tuple[str, object]  # the job of a lock, and the thread and task that acquired it

_held_here: contextvars.ContextVar[tuple[Held, ...]] = contextvars.ContextVar("daybreak.locks", default=())


def _caller() -> object:
    """The current thread and task. Tasks that start inside the block inherit the context, but do not hold the lock."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task) if task is not None else None


def _holds() -> list[str]:
    caller = _caller()
    return [job for job, holder in _held_here.get() if holder == caller]


class Lock:
    """A lock on one name, or on several at once: all or none. Use it as a context manager, `with` or `async with`, or
    as a decorator.

    `fence` is higher than the fence of every earlier holder: pass it to the system that the lock protects."""

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
        self.names = self._check_names(names)
        self.owner = owner
        self.wait = None if wait is None else duration(wait, "wait")
        self.lease_for = duration(lease, "lease")
        if self.lease_for < SHORTEST_LEASE:
            raise BadInput(f"lease={lease!r}: the shortest lease of a lock is {SHORTEST_LEASE.total_seconds():g} s")
        self.priority = _priority(priority)
        self._find_sessions = sessions
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._id: str | None = None
        self._held_until = 0.0
        self._held_since = 0.0
        self._renewal: asyncio.Task[None] | None = None
        self._renewal_loop: asyncio.AbstractEventLoop | None = None
        self._held_before: tuple[Held, ...] = ()
        self._pid = 0

    def _check_names(self, names: Sequence[str]) -> tuple[str, ...]:
        return check_names(names)

    @property
    def _needs(self) -> tuple[Need, ...]:
        return lock_job.needs_of_locks(self.names)

    _freed_by_time = False  # only a holder frees a lock

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
        """The lease while the lock is held."""
        return self._lease

    def __repr__(self) -> str:
        return f"<lock {', '.join(self.names)}, {'held' if self.is_held else 'not held'}>"

    @property
    def job(self) -> str | None:
        """The id of the job that represents the lock: waiting, holding, or ended."""
        return self._id

    @property
    def fence(self) -> int:
        if self._lease is None:
            raise BadInput(f"lock {', '.join(self.names)} is not held: it has a fence only while it is held")
        return self._lease.fence

    @property
    def is_held(self) -> bool:
        """Whether the lock is certainly held. False as soon as the lease may have run out, for example because the
        store was out of reach for too long."""
        return self._lease is not None and time.monotonic() < self._held_until and self._pid == os.getpid()

    def check(self) -> None:
        """Raise LeaseLost if the lock may be lost. Call it between two steps of long work."""
        if not self.is_held:
            raise LeaseLost(self._id or ", ".join(self.names), self._lease.fence if self._lease else 0)

    # -- acquire -------------------------------------------------------------------------------------------------------

    async def aacquire(self) -> Self:
        """Wait for the lock; LockTimeout if that takes longer than `wait`, LockShed if a full queue drops this wait."""
        await self._acquire_on_store_loop(())
        return self

    acquire = blocking(aacquire)

    async def _acquire_on_store_loop(self, holds: Sequence[str]) -> None:
        try:
            await self._sessions.here(self._acquire(holds))
        except asyncio.CancelledError:
            if self._lease is not None:  # it was granted on the portal's loop at the same moment
                self._portal.spawn(self._release())
            raise

    async def _acquire(self, holds: Sequence[str]) -> None:
        refuse_during_import("lock")
        if self._id is not None:
            raise BadInput(f"lock {', '.join(self.names)} is in use: create one for each use with app.lock(...)")
        sessions = self._sessions
        self._id, self._pid = sessions.new_id(), os.getpid()  # before the first await: another thread may use the lock
        try:
            client, consumer = await sessions.client(), consumer_of(sessions)
            consumer.start()  # its services free the locks of crashed holders, also where no worker runs
            spec = lock_job.spec_for(
                client, self._id, self._needs, holder=f"{consumer.id}/{self._id}", owner=self.owner or client.by,
                priority=self.priority,
                wait=self.wait, hold_for=self.lease_for, holds=holds,
            )  # fmt: skip
            lock_wait = LockWait(client, spec, self.wait, self._declared, freed_by_time=self._freed_by_time)
            self._lease = await lock_wait.until_granted(sessions.provided)
            self._held_until = lock_wait.granted_after + self.lease_for.total_seconds()
            await self._renew_late_grant(client, self._lease)
        except BaseException:
            lease, self._lease, self._id, self._held_until = self._lease, None, None, 0.0
            if lease is not None:  # release it, so that the next waiter need not wait until the lease runs out
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(LEAVE_TIMEOUT):
                        await asyncio.shield(lock_job.give_back(client, lease))
            raise
        self._held_since = time.monotonic()
        self._renewal_loop = asyncio.get_running_loop()
        self._renewal = self._renewal_loop.create_task(self._renew(client, self._lease))

    async def _renew_late_grant(self, client: Client, lease: Lease) -> None:
        """Renew the lease if a part of it may be over: the grant may have happened at any time since the last check."""
        sent_at = time.monotonic()
        if self._held_until - sent_at > self.lease_for.total_seconds() * 2 / 3:
            return
        lease_for = self.lease_for.total_seconds()
        async with client.durations.limited("renewal of locks", BASES["renewal"], at_most=lease_for):
            if not await lock_job.renew(client, lease, self.lease_for):
                raise LeaseLost(lease.job, lease.fence)
        self._held_until = sent_at + lease_for

    async def _renew(self, client: Client, lease: Lease) -> None:
        """Renew the lease until it is lost. It counts as lost if no renewal succeeded in time, whatever the cause."""
        lease_for = self.lease_for.total_seconds()
        pause = min(lease_for / 3, max(self._held_until - time.monotonic() - lease_for / 2, 0))
        while True:
            await asyncio.sleep(pause)
            sent_at = time.monotonic()
            try:
                left = max(self._held_until - sent_at, 0.05)
                renewal = client.durations.limited("renewal of locks", BASES["renewal"], at_most=left)
                with patience.soon(min(left, 1.0)):
                    async with renewal:
                        held = await lock_job.renew(client, lease, self.lease_for)
            except Exception as error:  # noqa: BLE001 - after any error the lock is not renewed
                _log.warning("lock %s: could not renew it: %s", ", ".join(self.names), error or "no reply in time")
                held = time.monotonic() < self._held_until
                pause = min(lease_for / 3, 0.5, max(self._held_until - time.monotonic(), 0))
            else:
                pause = lease_for / 3
                if held:
                    self._held_until = sent_at + lease_for
            if not held:
                self._lost()
                return

    def _lost(self) -> None:
        self._held_until = 0.0
        _log.error("lock %s was lost: its lease ran out, or someone released it by force", ", ".join(self.names))
        if self._on_lost is not None:
            try:
                self._on_lost(self)
            except Exception:  # noqa: BLE001 - the user's function may raise anything
                _log.exception("lock %s: on_lost failed", ", ".join(self.names))

    # -- release -------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def arelease(self) -> None:
        """Release the lock; LeaseLost if it was lost before."""
        await self._release()

    release = blocking(arelease)

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        job, self._id = self._id, None
        renewal, self._renewal = self._renewal, None
        if renewal is not None and self._renewal_loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                self._renewal_loop.call_soon_threadsafe(renewal.cancel)
        if self._pid != os.getpid():  # in a forked child: the parent holds the lock
            return
        held_for = time.monotonic() - self._held_since
        if lease is not None and not await lock_job.give_back(await self._sessions.client(), lease, held_for=held_for):
            raise LeaseLost(job or "", lease.fence)

    @on_store_loop
    async def aposition(self) -> int | None:
        """Return how many waiters are ahead; None if the lock is held or nobody waits with this object."""
        if self._id is None:
            return None
        position = await (await self._sessions.client()).position(self._id)
        return None if position is None else position.ahead

    position = blocking(aposition)

    # -- context manager and decorator ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._portal.run(self._sessions.here(self._acquire(_holds())))
        self._entered()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _held_here.set(self._held_before)
        try:
            self.release()
        except (LeaseLost, StoreError) as second:
            self._raise_or_log(error, second)

    async def __aenter__(self) -> Self:
        await self._acquire_on_store_loop(_holds())
        self._entered()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _held_here.set(self._held_before)
        try:
            await self.arelease()
        except (LeaseLost, StoreError) as second:
            self._raise_or_log(error, second)

    def _entered(self) -> None:
        assert self._id is not None
        self._held_before = _held_here.get()
        _held_here.set((*self._held_before, (self._id, _caller())))

    def _raise_or_log(self, error: BaseException | None, second: Exception) -> None:
        """If the block raised an error, log the error of the release, so that the caller gets the block's error."""
        if error is None:
            raise second
        _log.warning("lock %s: could not release it: %s", ", ".join(self.names), second)

    def __call__(self, function: F) -> F:
        """Decorate a function: hold the lock while the function runs."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def hold_async(*args: Any, **kwargs: Any) -> Any:
                async with self._copy():
                    return await function(*args, **kwargs)

            return hold_async  # type: ignore[return-value]

        @functools.wraps(function)
        def hold(*args: Any, **kwargs: Any) -> Any:
            with self._copy():
                return function(*args, **kwargs)

        return hold  # type: ignore[return-value]

    def _copy(self) -> Lock:
        return Lock(
            self._find_sessions, self.names, priority=self.priority, wait=self.wait, lease=self.lease_for,
            on_lost=self._on_lost, owner=self.owner,
        )  # fmt: skip


_priority = priority

__all__ = ["Lock", "Waiter", "all_waiters"]

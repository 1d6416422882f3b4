"""Waits for a lock: joins the queue of waiters, wakes when the lock is granted, and leaves if the caller gives up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from daybreak.api.locks import lock_job
from daybreak.api.locks.deadlocks import WaitGraph
from daybreak.client.client import Client
from daybreak.client.leases import lease_of
from daybreak.core.errors import LockCycle, LockShed, LockTimeout, StoreError, StoreUnavailable, WrongState
from daybreak.core.model import FINAL, Job, JobSpec, Lease, Reason, State
from daybreak.policy.resources import LOCK_PREFIX, Resource
from daybreak.policy.timeouts import BASES
from daybreak.store.protocol import Verdict, job_topic

_log = logging.getLogger("daybreak.locks")

POLL_EVERY: Final = 30.0  # seconds; in case a wake-up is missed
FIRST_DEADLOCK_CHECK: Final = 0.3  # seconds after the start of the wait
NESTED_CHECK_EVERY: Final = 1.0  # for waiters that hold other locks
OTHER_CHECK_EVERY: Final = 5.0
LEAVE_TIMEOUT: Final = 10.0
EXPIRE_TRIES: Final = 10


class LockWait:
    """One caller that waits for a lock."""

    def __init__(
        self,
        client: Client,
        spec: JobSpec,
        wait: timedelta | None,
        declared: Sequence[Resource] = (),
        *,
        freed_by_time: bool = False,
    ) -> None:
        self._client = client
        self._spec = spec
        self._declared = declared
        self._names = [need.resource.removeprefix(LOCK_PREFIX) for need in spec.options.resources]
        self._wait = wait
        self._freed_by_time = freed_by_time  # a rate limit or a breaker frees the resource without a holder
        self._due_in = POLL_EVERY
        self._started_at = time.monotonic()
        self._until = None if wait is None else self._started_at + wait.total_seconds()
        self._deadlock_check_at = self._started_at + FIRST_DEADLOCK_CHECK
        self._id = spec.id
        self.granted_after = self._started_at  # on the monotonic clock: the grant happened later than this

    async def until_granted(self, provided: dict[str, object]) -> Lease:
        """Wait until the lock is granted. Raises LockTimeout, LockCycle or WrongState."""
        client = self._client
        watch = client.store.watch([job_topic(self._spec.id)])  # before the request, so that no grant is missed
        try:
            await self._request(provided)
            while True:
                checked_at = time.monotonic()
                job = await self._read()
                if job is not None:
                    if job.state is State.RUNNING:
                        return lease_of(job)
                    self.granted_after = checked_at
                    if job.state in FINAL:
                        await self._refuse(job)
                    if self._left() <= 0:
                        job = await self._expire(job)
                        if job.state is State.RUNNING:  # granted at the last moment
                            return lease_of(job)
                        await self._refuse(job)
                    await self._check_deadlocks(job)
                    await self._advance()
                await watch.wait(timedelta(seconds=self._pause()))
        except BaseException:
            await self._leave()
            raise
        finally:
            watch.close()

    async def _request(self, provided: dict[str, object]) -> None:
        self.granted_after = time.monotonic()
        durations = self._client.durations
        try:
            async with durations.limited("acquisition of locks", BASES["acquisition"]):
                inserted = await lock_job.request(self._client, self._spec, self._declared, provided)
        except TimeoutError:
            raise StoreUnavailable(f"the store did not reply to the request for lock {self._names_text}") from None
        self._id = inserted.job
        if inserted.verdict is Verdict.FULL:
            raise LockTimeout(self._names_text, "no time at all: too many wait for it already")

    async def _read(self) -> Job | None:
        """Read the lock's job. None while the store is out of reach: the position in the queue is kept there."""
        try:
            return await self._client.get(self._id)
        except StoreUnavailable:
            if self._left() <= 0:
                raise
            await asyncio.sleep(min(0.5, max(self._left(), 0)))
            return None

    def _left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()

    def _pause(self) -> float:
        return max(min(self._left(), self._deadlock_check_at - time.monotonic(), POLL_EVERY, self._due_in), 0.001)

    async def _advance(self) -> None:
        """Free what a rate limit or a breaker frees by time. Where no worker runs, nobody else does it in time."""
        if self._freed_by_time:
            advanced = await self._client.store.advance()
            due_in = POLL_EVERY if advanced.next_in is None else advanced.next_in.total_seconds()
            self._due_in = max(due_in, 0.02)

    @property
    def _names_text(self) -> str:
        return ", ".join(self._names)

    async def _expire(self, job: Job) -> Job:
        """Let the store expire the job. Its clock may be slightly behind, so this is tried several times."""
        with contextlib.suppress(StoreUnavailable):
            for _ in range(EXPIRE_TRIES if self._id == self._spec.id else 0):
                await self._client.store.advance()
                job = await self._client.get(self._id)
                if job.state is not State.BLOCKED:
                    break
                await asyncio.sleep(0.01)
        return job

    async def _refuse(self, job: Job) -> None:
        if job.state is State.CANCELLED:
            raise WrongState(job.id, "cancelled", f"someone cancelled this wait for lock {self._names_text}")
        if job.state is State.FAILED and job.reason is Reason.SHED:
            raise LockShed(self._names_text, job.note)
        if job.state is State.FAILED and job.reason is not Reason.EXPIRED:
            raise WrongState(job.id, "failed", f"lock {self._names_text} was granted, but lost before this was noticed")
        names = set(self._names)
        holders = [holder for holder in await lock_job.holders(self._client) if set(lock_job.names_of(holder)) & names]
        waited = f"{time.monotonic() - self._started_at:.3g} s"
        raise LockTimeout(self._names_text, waited, ", ".join(sorted({one.spec.owner or "" for one in holders})))

    async def _leave(self) -> None:
        """Leave the queue of waiters. If the lock was granted at the same moment, release it."""

        async def leave() -> None:
            if self._id != self._spec.id:  # the job belongs to another caller with the same owner
                return
            amended = await self._client.cancel(self._spec.id)
            if amended.verdict == "requested":
                job = await self._client.get(self._spec.id)
                if job.state is State.RUNNING:
                    await lock_job.give_back(self._client, lease_of(job))

        with contextlib.suppress(StoreError, LookupError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await asyncio.shield(leave())

    # -- deadlocks -----------------------------------------------------------------------------------------------------

    async def _check_deadlocks(self, job: Job) -> None:
        if time.monotonic() < self._deadlock_check_at:
            return
        with contextlib.suppress(StoreUnavailable):  # the store keeps the position in the queue
            await self._resolve(job)

    async def _resolve(self, job: Job) -> None:
        """Fail the youngest waiter of a deadlock, and let holders inherit the priority of this waiter."""
        is_nested = lock_job.NESTED in job.spec.tags
        every = NESTED_CHECK_EVERY if is_nested else OTHER_CHECK_EVERY
        jitter = 0.75 + 0.5 * random.random()  # noqa: S311 - spreads the checks of many waiters
        self._deadlock_check_at = time.monotonic() + every * jitter
        if not is_nested and not await self._is_first():
            return
        nested = await lock_job.waiters(self._client, tag=lock_job.NESTED)
        if not nested:
            return
        graph = WaitGraph(nested, await lock_job.holders(self._client))
        if is_nested and (cycle := graph.cycle_of(job)):
            youngest = max(cycle, key=lambda one: one.seq)
            _log.warning("deadlock of locks: %s", graph.describe(cycle))
            if youngest.id == job.id:
                raise LockCycle(graph.describe(cycle))
        await self._lend_priority(job, graph)

    async def _is_first(self) -> bool:
        """Whether this is the first waiter. Only the first has a priority to lend, so of ten thousand one checks."""
        position = await self._client.position(self._spec.id)
        return position is not None and position.ahead == 0

    async def _lend_priority(self, job: Job, graph: WaitGraph) -> None:
        """Priority inheritance: if the holder of the awaited lock waits for another lock, raise its priority there."""
        other, seen = graph.next_after(job), {job.id}
        while other is not None and other.id not in seen and other.priority > job.priority:
            seen.add(other.id)
            await self._client.reprioritise(other.id, job.priority)
            other = graph.next_after(other)

"""Waiting for a lock: in line by priority, told when it is granted, out of line when the caller gives up."""

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
from daybreak.api.locks.deadlocks import Knot
from daybreak.client.client import Client
from daybreak.client.leases import lease_of
from daybreak.core.errors import LockCycle, LockTimeout, StoreError, StoreUnavailable, WrongState
from daybreak.core.model import FINAL, Job, JobSpec, Lease, Reason, State
from daybreak.policy.resources import LOCK_PREFIX, Resource
from daybreak.policy.timeouts import BASES
from daybreak.store.protocol import Verdict, job_topic

_log = logging.getLogger("daybreak.locks")

LOOK_EVERY: Final = 30.0  # the net under the wake-ups
LOOK_FOR_KNOTS: Final = 0.3  # seconds after which one looks whom one waits for
NESTED_EVERY: Final = 1.0
OTHERS_EVERY: Final = 5.0
GIVE_UP_WITHIN: Final = 10.0
RUN_OUT_TRIES: Final = 10


class LockWait:
    """One caller in line."""

    def __init__(
        self,
        client: Client,
        spec: JobSpec,
        wait: timedelta | None,
        declared: Sequence[Resource] = (),
        *,
        by_time: bool = False,
    ) -> None:
        self._client = client
        self._spec = spec
        self._declared = declared
        self._names = [need.resource.removeprefix(LOCK_PREFIX) for need in spec.options.resources]
        self._wait = wait
        self._by_time = by_time  # what it waits for may be freed by time alone: a pace, or a breaker
        self._due_in = LOOK_EVERY
        self._began = time.monotonic()
        self._until = None if wait is None else self._began + wait.total_seconds()
        self._knots_at = self._began + LOOK_FOR_KNOTS
        self._id = spec.id
        self.granted_after = self._began  # of the steady clock: it was granted later than this

    async def until_granted(self, provided: dict[str, object]) -> Lease:
        client = self._client
        watch = client.store.watch([job_topic(self._spec.id)])  # before it is there, or its grant could be missed
        try:
            await self._stand_in_line(provided)
            while True:
                asked_at = time.monotonic()
                job = await self._look()
                if job is not None:
                    if job.state is State.RUNNING:
                        return lease_of(job)
                    self.granted_after = asked_at
                    if job.state in FINAL:
                        await self._refuse(job)
                    if self._left() <= 0:
                        job = await self._run_out(job)
                        if job.state is State.RUNNING:  # in the last moment
                            return lease_of(job)
                        await self._refuse(job)
                    await self._look_for_knots(job)
                    await self._see_what_time_frees()
                await watch.wait(timedelta(seconds=self._rest()))
        except BaseException:
            await self._leave_line()
            raise
        finally:
            watch.close()

    async def _stand_in_line(self, provided: dict[str, object]) -> None:
        self.granted_after = time.monotonic()
        durations = self._client.durations
        try:
            async with durations.limited("acquisition of locks", BASES["acquisition"]):
                answer = await lock_job.ask(self._client, self._spec, self._declared, provided)
        except TimeoutError:
            raise StoreUnavailable(f"the store did not answer who asked for lock {self._told_names}") from None
        self._id = answer.job
        if answer.verdict is Verdict.FULL:
            raise LockTimeout(self._told_names, "no time at all: too many wait for it already")

    async def _look(self) -> Job | None:
        """None while the store is out of reach: one's place in line is kept there."""
        try:
            return await self._client.get(self._id)
        except StoreUnavailable:
            if self._left() <= 0:
                raise
            await asyncio.sleep(min(0.5, max(self._left(), 0)))
            return None

    def _left(self) -> float:
        return float("inf") if self._until is None else self._until - time.monotonic()

    def _rest(self) -> float:
        return max(min(self._left(), self._knots_at - time.monotonic(), LOOK_EVERY, self._due_in), 0.001)

    async def _see_what_time_frees(self) -> None:
        """Where no worker runs, nobody else looks in time."""
        if self._by_time:
            advanced = await self._client.store.advance()
            due_in = LOOK_EVERY if advanced.next_in is None else advanced.next_in.total_seconds()
            self._due_in = max(due_in, 0.02)

    @property
    def _told_names(self) -> str:
        return ", ".join(self._names)

    async def _run_out(self, job: Job) -> Job:
        """The store ends it as one that waited too long, by its own clock, which may be a moment behind."""
        with contextlib.suppress(StoreUnavailable):
            for _ in range(RUN_OUT_TRIES if self._id == self._spec.id else 0):
                await self._client.store.advance()
                job = await self._client.get(self._id)
                if job.state is not State.BLOCKED:
                    break
                await asyncio.sleep(0.01)
        return job

    async def _refuse(self, job: Job) -> None:
        if job.state is State.CANCELLED:
            raise WrongState(job.id, "cancelled", f"somebody took this waiter for lock {self._told_names} out of line")
        if job.state is State.FAILED and job.reason is not Reason.EXPIRED:
            raise WrongState(job.id, "failed", f"lock {self._told_names} was granted and lost before it was noticed")
        holders = [
            one for one in await lock_job.who_holds(self._client) if set(lock_job.names_of(one)) & set(self._names)
        ]
        waited = f"{time.monotonic() - self._began:.3g} s"
        raise LockTimeout(self._told_names, waited, ", ".join(sorted({one.spec.owner or "" for one in holders})))

    async def _leave_line(self) -> None:
        """Whoever stops waiting is never granted; if he was, this very moment, he gives it back."""

        async def leave() -> None:
            if self._id != self._spec.id:  # another caller of the same owner stands there
                return
            amended = await self._client.cancel(self._spec.id)
            if amended.verdict == "requested":
                job = await self._client.get(self._spec.id)
                if job.state is State.RUNNING:
                    await lock_job.give_back(self._client, lease_of(job))

        with contextlib.suppress(StoreError, LookupError, TimeoutError):
            async with asyncio.timeout(GIVE_UP_WITHIN):
                await asyncio.shield(leave())

    # -- others who wait -----------------------------------------------------------------------------------------------

    async def _look_for_knots(self, job: Job) -> None:
        if time.monotonic() < self._knots_at:
            return
        with contextlib.suppress(StoreUnavailable):  # one's place in line is kept
            await self._untie(job)

    async def _untie(self, job: Job) -> None:
        is_nested = lock_job.NESTED in job.spec.tags
        every = NESTED_EVERY if is_nested else OTHERS_EVERY
        self._knots_at = time.monotonic() + every * (0.75 + 0.5 * random.random())  # noqa: S311 - to spread them
        if not is_nested and not await self._is_first():
            return
        nested = await lock_job.who_waits(self._client, tag=lock_job.NESTED)
        if not nested:
            return
        knot = Knot(nested, await lock_job.who_holds(self._client))
        if is_nested and (cycle := knot.cycle_of(job)):
            youngest = max(cycle, key=lambda one: one.seq)
            _log.warning("locks wait for one another: %s", knot.told(cycle))
            if youngest.id == job.id:
                raise LockCycle(knot.told(cycle))
        await self._lend_priority(job, knot)

    async def _is_first(self) -> bool:
        """Only the most urgent has something to lend; of ten thousand who wait one looks further."""
        position = await self._client.position(self._spec.id)
        return position is not None and position.ahead == 0

    async def _lend_priority(self, job: Job, knot: Knot) -> None:
        """Who holds what an urgent one waits for, and waits for something else, does so as urgently."""
        other, seen = knot.next_after(job), {job.id}
        while other is not None and other.id not in seen and other.priority > job.priority:
            seen.add(other.id)
            await self._client.reprioritise(other.id, job.priority)
            other = knot.next_after(other)

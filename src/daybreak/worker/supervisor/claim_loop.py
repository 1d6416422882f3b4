"""The loop of one pool: report the outcomes of jobs that ended, and claim the jobs that can start."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from daybreak.core.model import Ending, Lease
from daybreak.store.protocol import Watch
from daybreak.system.ports import Clock, World
from daybreak.worker.supervisor.exchange_retry import ExchangeRetry
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, Source
from daybreak.worker.supervisor.orphaned_leases import OrphanedLeases
from daybreak.worker.supervisor.pool import Pool

POLL_INTERVAL: Final = timedelta(seconds=30)
MAX_URGENT_JOBS: Final = 4  # jobs that one urgent claim asks for
MIN_SLOTS_BESIDE_CLAIM: Final = 4 * MAX_URGENT_JOBS
# An urgent claim goes before the next exchange if exchanges take so many seconds, and beside the current one if they
# take longer still.
SLOW_EXCHANGE: Final = 0.0015
VERY_SLOW_EXCHANGE: Final = 0.006
URGENT_CLAIM_PAUSE: Final = 0.03  # seconds without urgent claims after one that found nothing urgent


class ClaimLoop:
    """`on_exchanged` gets the result of every exchange. Once `leaving` is set, the loop ends when all outcomes are
    reported."""

    def __init__(
        self,
        pool: Pool,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        stopping: asyncio.Event,
        on_exchanged: Callable[[ExchangeResult], None],
    ) -> None:
        self.pool = pool
        self.leaving = False
        self._source = source
        self._clock = Clock(world)
        self._exchange_retry = ExchangeRetry(source, world, lease_for=lease_for)
        self._stopping = stopping
        self._on_exchanged = on_exchanged
        self._calls = itertools.count(1)
        self._is_exchanging = self._is_claiming = False
        self._urgent_claim: asyncio.Task[None] | None = None
        self._no_urgent_claim_before = 0.0
        self._orphaned_leases = OrphanedLeases(
            source, world, lease_for=lease_for, known_leases=pool.leases, on_found=pool.return_orphaned
        )
        self._next_claim: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Exchange outcomes for leases until `leaving`, and sleep while no job has ended and none can start.

        One exchange at a time: jobs that end meanwhile are reported by the next. Only an urgent claim may run beside
        an exchange."""
        pool = self.pool
        watch = self._source.watch_work()
        watch.on_wake(self._on_work_announced)
        polling = asyncio.create_task(self._poll(watch))
        try:
            while not (self.leaving and not pool.ended and self._urgent_claim is None):
                pool.changed.clear()
                room = self._room if pool.may_find_work else 0
                if room > 0 and self._should_claim_urgent:
                    self._urgent_claim = asyncio.create_task(self._claim_urgent(min(MAX_URGENT_JOBS, room)))
                    await self._urgent_claim
                elif pool.ended or room > 0:
                    # Work that was just announced may be urgent: do not wait for more outcomes first.
                    has_only_news = pool.announced and not pool.ended
                    if (not has_only_news and await pool.wait_for_more_outcomes()) or not room:
                        room = self._room
                    await self._settle_and_claim(room)
                    await _let_children_report()
                else:
                    await self._wait_for_change()
        finally:
            watch.close()
            await self._cancel_background(polling)

    async def _cancel_background(self, polling: asyncio.Task[None]) -> None:
        if self._next_claim is not None:
            self._next_claim.cancel()
        await self._orphaned_leases.close()
        tasks = [polling]
        if self._urgent_claim is not None:
            tasks.append(self._urgent_claim)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _room(self) -> int:
        return 0 if self._stopping.is_set() else max(self.pool.capacity.room(announced=self.pool.announced), 0)

    async def _wait_for_change(self) -> None:
        """Wait until there is something to do. That includes the time shortly before a slot is expected to become free,
        so that its next job is claimed in advance."""
        pool = self.pool
        timer = None
        if pool.may_find_work and not self._stopping.is_set():
            wait = pool.capacity.next_claim_in()
            if wait is not None:
                timer = self._clock.call_later(wait, pool.changed.set)
        try:
            await pool.changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- urgent work ---------------------------------------------------------------------------------------------------

    def _on_work_announced(self) -> None:
        pool = self.pool
        pool.look_for_work()
        if self._is_exchanging and pool.capacity.batch_size.seconds >= VERY_SLOW_EXCHANGE and self._may_claim_urgent:
            room = min(MAX_URGENT_JOBS, self._room)
            # The claim under way may fill all the room there is: claim a few more only where there are many slots.
            if room > 0 and not (self._is_claiming and pool.capacity.slots < MIN_SLOTS_BESIDE_CLAIM):
                self._urgent_claim = asyncio.create_task(self._claim_urgent(room))

    async def _poll(self, watch: Watch) -> None:
        """Look for work every now and then, in case an announcement was lost."""
        while True:
            if not await watch.wait(POLL_INTERVAL):
                self._on_work_announced()

    @property
    def _may_claim_urgent(self) -> bool:
        return (
            self._urgent_claim is None
            and self._clock.now() >= self._no_urgent_claim_before
            and not (self._stopping.is_set() or self._exchange_retry.is_retrying)
        )

    @property
    def _should_claim_urgent(self) -> bool:
        pool = self.pool
        # A pool without jobs needs no urgent claim: its next exchange goes at once and carries nothing else.
        return (
            pool.announced
            and pool.held_count > 0
            and pool.capacity.batch_size.seconds >= SLOW_EXCHANGE
            and self._may_claim_urgent
        )  # fmt: skip

    async def _claim_urgent(self, room: int) -> None:
        """Claim a few jobs by themselves: work was announced, and an urgent job should not wait for the exchange under
        way or for the next one, which carry much. If that finds no urgent job, pause urgent claims for a while."""
        pool = self.pool
        pool.announced = False
        try:
            result = await self._exchange([], self._claim_request(room))
            if pool.are_urgent(result.leases):
                pool.capacity.batch_size.expect_urgent()
            else:
                self._no_urgent_claim_before = self._clock.now() + URGENT_CLAIM_PAUSE
            self._accept(result)
        finally:
            self._urgent_claim = None
            pool.changed.set()

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def _claim_request(self, limit: int) -> ClaimRequest:
        call = f"{self.pool.children.kind}{next(self._calls)}"
        begins = min(limit, self.pool.capacity.free)
        return ClaimRequest(self.pool.tasks, limit, call, begins=begins, batches=self.pool.batches)

    async def _settle_and_claim(self, room: int) -> None:
        pool = self.pool
        ended, pool.ended = pool.ended, []
        pool.reporting = ended
        # Clear these before the request: an announcement that arrives while it is under way is not answered by it.
        pool.may_find_work = pool.announced = False
        self._is_exchanging, self._is_claiming = True, room > 0
        asked_at = self._clock.now()
        try:
            result = await self._exchange(ended, self._claim_request(room) if room > 0 else None)
        except BaseException:
            pool.ended = [*ended, *pool.ended]  # report them again later; repeating an outcome is harmless
            raise
        finally:
            self._is_exchanging = self._is_claiming = False
            pool.reporting = []
        pool.capacity.record_exchange(len(ended) + len(result.leases), self._clock.now() - asked_at)
        self._accept(result)
        self._schedule_next_claim(result, room)

    async def _exchange(self, ended: list[tuple[Lease, Ending]], claim: ClaimRequest | None) -> ExchangeResult:
        result, is_repeated = await self._exchange_retry.exchange(ended, claim)
        if is_repeated and claim is not None:
            self._orphaned_leases.watch(claim)
        return result

    def _accept(self, result: ExchangeResult) -> None:
        if result.leases:
            self.pool.hand_out(result.leases)
        self._on_exchanged(result)

    def _schedule_next_claim(self, result: ExchangeResult, room: int) -> None:
        if self._next_claim is not None:
            self._next_claim.cancel()
            self._next_claim = None
        if result.calls >= room or result.again:
            self.pool.may_find_work = True
        elif result.next_in is not None:
            wait = max(result.next_in.total_seconds(), 0.001)
            self._next_claim = self._clock.call_later(wait, self.pool.look_for_work)


async def _let_children_report() -> None:
    """Let the event loop read the messages of children: a store may answer an exchange without ever waiting."""
    # The loop polls the sockets in its next iteration and runs their callbacks after this task has resumed from the
    # first sleep, so only the second sleep returns after them.
    await asyncio.sleep(0)
    await asyncio.sleep(0)

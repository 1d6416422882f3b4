"""The loop of one pool: exchange what ended for what can start."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from daybreak.core.model import Lease, Outcome
from daybreak.store.protocol import Watch
from daybreak.system.ports import World
from daybreak.worker.supervisor.exchange_retry import ExchangeRetry
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, Source
from daybreak.worker.supervisor.orphaned_leases import OrphanedLeases
from daybreak.worker.supervisor.pool import Pool

POLL: Final = timedelta(seconds=30)
HURRIED: Final = 4  # jobs taken by themselves, at most
MANY_SLOTS: Final = 4 * HURRIED
NOTICED: Final = 0.0015  # seconds that exchanges last: what is urgent goes before them
LONG: Final = 0.006  # and beside them
NOTHING_URGENT: Final = 0.03


class ClaimLoop:
    """`told` hears of every exchange that was answered. Once `leaving`, it ends when all that ended is reported."""

    def __init__(
        self,
        pool: Pool,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        stopping: asyncio.Event,
        told: Callable[[ExchangeResult], None],
    ) -> None:
        self.pool = pool
        self.leaving = False
        self._source = source
        self._asking = ExchangeRetry(source, world, lease_for=lease_for)
        self._stopping = stopping
        self._told = told
        self._calls = itertools.count(1)
        self._is_asking = self._is_claiming = False
        self._hurrying: asyncio.Task[None] | None = None
        self._no_hurry_before = 0.0
        self._strays = OrphanedLeases(source, world, lease_for=lease_for, known=pool.held, found=pool.give_strays_back)
        self._next_look: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Sleeps while nothing has ended and nothing can start. One exchange at a time: what ends meanwhile goes with
        the next. Only a hurried claim may go beside it."""
        pool = self.pool
        watch = self._source.watch_work()
        watch.on_wake(self._announced)
        waker = asyncio.create_task(self._look_now_and_then(watch))
        try:
            while not (self.leaving and not pool.ended and self._hurrying is None):
                pool.changed.clear()
                room = self._room if pool.may_find else 0
                if room > 0 and self._should_hurry:
                    self._hurrying = asyncio.create_task(self._hurry(min(HURRIED, room)))
                    await self._hurrying
                elif pool.ended or room > 0:
                    is_mere_news = pool.announced and not pool.ended
                    if (not is_mere_news and await pool.gather()) or not room:
                        room = self._room
                    await self._settle_and_claim(room)
                    await _a_round()
                else:
                    await self._until_changed()
        finally:
            watch.close()
            await self._give_up(waker)

    async def _give_up(self, waker: asyncio.Task[None]) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        await self._strays.close()
        tasks = [waker, *([] if self._hurrying is None else [self._hurrying])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _room(self) -> int:
        return 0 if self._stopping.is_set() else max(self.pool.room, 0)

    async def _until_changed(self) -> None:
        """Until there is something to do; also when a slot should soon be free, so that its next job is at hand."""
        pool = self.pool
        soon = pool.frees_in() if pool.may_find and not self._stopping.is_set() else None
        timer = None if soon is None else asyncio.get_running_loop().call_later(soon, pool.changed.set)
        try:
            await pool.changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- urgent work ---------------------------------------------------------------------------------------------------

    def _announced(self) -> None:
        pool = self.pool
        pool.look_again()
        if self._is_asking and pool.exchanges_last >= LONG and self._may_hurry:
            room = min(HURRIED, self._room)
            # The claim under way may take all the room there is: a few more are at hand only where slots are many.
            if room > 0 and not (self._is_claiming and pool.slots < MANY_SLOTS):
                self._hurrying = asyncio.create_task(self._hurry(room))

    async def _look_now_and_then(self, watch: Watch) -> None:
        """The net under announcements that are lost."""
        while True:
            if not await watch.wait(POLL):
                self._announced()

    @property
    def _may_hurry(self) -> bool:
        return (
            self._hurrying is None
            and time.monotonic() >= self._no_hurry_before
            and not (self._stopping.is_set() or self._asking.is_in_trouble)
        )

    @property
    def _should_hurry(self) -> bool:
        pool = self.pool
        # With nothing in hand the claim itself goes at once, and carries nothing else.
        return pool.announced and pool.in_hand > 0 and pool.exchanges_last >= NOTICED and self._may_hurry

    async def _hurry(self, room: int) -> None:
        """Work was announced, and exchanges carry much: what is urgent should not wait for the one under way, nor for
        the next. Where that brings nothing urgent, it is not done again for a while."""
        pool = self.pool
        pool.announced = False
        try:
            taken = await self._exchange([], self._want(room))
            if pool.are_urgent(taken.leases):
                pool.found_urgent()
            else:
                self._no_hurry_before = time.monotonic() + NOTHING_URGENT
            self._answered(taken)
        finally:
            self._hurrying = None
            pool.changed.set()

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def _want(self, limit: int) -> ClaimRequest:
        call = f"{self.pool.children.kind}{next(self._calls)}"
        return ClaimRequest(self.pool.tasks, limit, call, begins=min(limit, self.pool.free))

    async def _settle_and_claim(self, room: int) -> None:
        pool = self.pool
        ended, pool.ended = pool.ended, []
        pool.reporting = ended
        # Before the question: what comes in while it is under way must not be taken for answered.
        pool.may_find = pool.announced = False
        self._is_asking, self._is_claiming = True, room > 0
        asked_at = time.monotonic()
        try:
            taken = await self._exchange(ended, self._want(room) if room > 0 else None)
        except BaseException:
            pool.ended = [*ended, *pool.ended]  # told again later; a repeat is harmless
            raise
        finally:
            self._is_asking = self._is_claiming = False
            pool.reporting = []
        pool.took(len(ended) + len(taken.leases), time.monotonic() - asked_at)
        self._answered(taken)
        self._look_when_due(taken, room)

    async def _exchange(self, ended: list[tuple[Lease, Outcome]], want: ClaimRequest | None) -> ExchangeResult:
        taken, repeated = await self._asking.exchange(ended, want)
        if repeated and want is not None:
            self._strays.expect(want)
        return taken

    def _answered(self, taken: ExchangeResult) -> None:
        if taken.leases:
            self.pool.hand_out(taken.leases)
        self._told(taken)

    def _look_when_due(self, taken: ExchangeResult, room: int) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if len(taken.leases) >= room or taken.again:
            self.pool.may_find = True
        elif taken.next_in is not None:
            wait = max(taken.next_in.total_seconds(), 0.001)
            self._next_look = asyncio.get_running_loop().call_later(wait, self.pool.look_again)


async def _a_round() -> None:
    """Let the loop read what children said meanwhile: an exchange may have been answered without a wait."""
    await asyncio.sleep(0)  # what this round found is run after whoever sleeps so
    await asyncio.sleep(0)

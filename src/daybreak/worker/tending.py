"""The loop of one pool: exchange what ended for what can start, and ask again until the store answers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.errors import StoreError, StoreTooNew
from daybreak.model import Lease, Outcome
from daybreak.store import Watch
from daybreak.worker.pool import Pool
from daybreak.worker.source import Source, Taken, Want
from daybreak.world import World

_log = logging.getLogger("daybreak.worker")

POLL: Final = timedelta(seconds=30)
LONGEST_PAUSE: Final = timedelta(seconds=5)


class Tending:
    """`told` hears of every exchange that was answered. Once `leaving`, it ends when all that ended is reported."""

    def __init__(
        self,
        pool: Pool,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        stopping: asyncio.Event,
        told: Callable[[Taken], None],
    ) -> None:
        self.pool = pool
        self.leaving = False
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._stopping = stopping
        self._told = told
        self._calls = itertools.count(1)

    async def run(self) -> None:
        """Sleeps while nothing has ended and nothing can start. One exchange at a time: what ends meanwhile goes with
        the next."""
        pool = self.pool
        watch = self._source.watch_work()
        waker = asyncio.create_task(self._wake_by(watch))
        timer: asyncio.TimerHandle | None = None
        try:
            while not (self.leaving and not pool.ended):
                pool.changed.clear()
                if not (pool.ended or (self._room > 0 and pool.may_find)):
                    await self._until_changed()
                    continue
                await pool.gather()
                room = self._room
                taken = await self._exchange(room)
                await _a_round()
                if timer is not None:
                    timer.cancel()
                    timer = None
                if len(taken.leases) >= room or taken.again:
                    pool.may_find = True
                elif taken.next_in is not None:
                    wait = max(taken.next_in.total_seconds(), 0.001)
                    timer = asyncio.get_running_loop().call_later(wait, pool.look_again)
        finally:
            waker.cancel()
            watch.close()

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

    async def _wake_by(self, watch: Watch) -> None:
        while True:
            await watch.wait(POLL)
            self.pool.look_again()

    async def _exchange(self, room: int) -> Taken:
        pool = self.pool
        ended, pool.ended = pool.ended, []
        pool.reporting = ended
        want = Want(pool.tasks, room, f"{pool.children.kind}{next(self._calls)}") if room > 0 else None
        # Before the question: what comes in while it is under way must not be taken for answered.
        pool.may_find = pool.announced = False
        asked_at = time.monotonic()
        try:
            taken = await self._persist(ended, want)
        except BaseException:
            pool.ended = [*ended, *pool.ended]  # told again later; a repeat is harmless
            raise
        finally:
            pool.reporting = []
        pool.took(len(ended) + len(taken.leases), time.monotonic() - asked_at)
        if taken.leases:
            pool.hand_out(taken.leases)
        self._told(taken)
        return taken

    async def _persist(self, ended: list[tuple[Lease, Outcome]], want: Want | None) -> Taken:
        """Ask until the store answers: what was reported may be repeated, and what was taken is answered again."""
        pause = timedelta(milliseconds=100)
        while True:
            try:
                return await self._source.exchange(ended, want)
            except StoreTooNew:
                raise
            except StoreError as trouble:
                wait = pause * (0.5 + self._world.chance.random())
                # Often within one lease: every holder has no more after an outage, and leases whose answer was lost
                # are beaten for by nobody.
                pause = min(pause * 2, LONGEST_PAUSE, self._lease_for / 8)
                _log.warning("store: %s; trying again in %.1f s", trouble, wait.total_seconds())
                await self._world.sleep(wait)
                if want is not None:
                    want = msgspec.structs.replace(want, repeats=True)


async def _a_round() -> None:
    """Let the loop read what children said meanwhile: an exchange may have been answered without a wait."""
    await asyncio.sleep(0)  # what this round found is run after whoever sleeps so
    await asyncio.sleep(0)

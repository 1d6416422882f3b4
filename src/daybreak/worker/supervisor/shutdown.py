"""The steps of a stop: finish running jobs, cancel them, kill them, and report every outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from daybreak.core.units import counted
from daybreak.system.ports import Clock
from daybreak.worker.supervisor.claim_loop import ClaimLoop
from daybreak.worker.supervisor.pool import Pool

_log = logging.getLogger("daybreak.worker")

EMPTY_POLL_INTERVAL: Final = 0.02  # seconds between two checks whether a job still runs
CANCEL_TIMEOUT: Final = 1.0  # seconds for cancelled async tasks to end
KILL_TIMEOUT: Final = 5.0  # seconds for killed children to end
REPORT_TIMEOUT: Final = 10.0  # seconds to report outcomes to a store that does not answer


class Shutdown:
    """Drains the pools of a worker. `hurry` is set by the second request to stop: then nothing is waited for."""

    def __init__(self, pools: Sequence[Pool], hurry: asyncio.Event, clock: Clock, *, grace: float) -> None:
        self._pools = pools
        self._hurry = hurry
        self._clock = clock
        self._grace = grace

    @property
    def _held_count(self) -> int:
        return sum(pool.held_count for pool in self._pools)

    async def drain(self) -> None:
        """Start no more jobs, and wait until none is left: first for the grace time, then by cancelling, then by
        killing the children."""
        for pool in self._pools:
            pool.drain()
        if self._held_count and not self._hurry.is_set():
            _log.warning(
                "stopping: %s for at most %g s; then, or at a second signal, unfinished jobs are handed back uncharged",
                counted(self._held_count, "job may run on", "jobs may run on"),
                self._grace,
            )
        await self._wait_until_empty(self._grace)
        if self._held_count:
            for pool in self._pools:
                pool.cancel_running()
            await self._wait_until_empty(CANCEL_TIMEOUT)
        if self._held_count:
            for pool in self._pools:
                pool.kill_children()
            self._hurry.clear()
            await self._wait_until_empty(KILL_TIMEOUT)

    async def _wait_until_empty(self, seconds: float) -> None:
        """Wait until the pools hold no jobs, for at most so long, and not at all after a second request to stop."""
        deadline = self._clock.now() + seconds
        while self._held_count and self._clock.now() < deadline and not self._hurry.is_set():
            await self._clock.sleep(EMPTY_POLL_INTERVAL)

    async def report_rest(self, loops: Sequence[ClaimLoop], running: list[asyncio.Task[None]]) -> None:
        """Let the claim loops report all outcomes and end. An exchange under way may still bring leases: they are
        handed back too."""
        for loop in loops:
            loop.leaving = True
            loop.pool.changed.set()
        if await self._clock.wait(running, REPORT_TIMEOUT):
            left = sum(len(pool.ended) + len(pool.reporting) for pool in self._pools)
            _log.error(
                "the store cannot be reached: %s",
                counted(
                    left,
                    "outcome is not reported; the job runs again once its lease expires",
                    "outcomes are not reported; the jobs run again once their leases expire",
                ),
            )

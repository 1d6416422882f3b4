"""Questions to the store that are asked until they are answered, so that nothing reported and nothing taken is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.errors import StoreError, StoreTooNew
from daybreak.model import Lease, Outcome
from daybreak.worker.source import Source, Taken, Want
from daybreak.world import World

_log = logging.getLogger("daybreak.worker")

LONGEST_PAUSE: Final = timedelta(seconds=5)
STRAYS_FOR: Final = timedelta(seconds=60)  # how late a claim may reach the store whose connection was cut


class Asking:
    def __init__(self, source: Source, world: World, *, lease_for: timedelta) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._in_trouble = 0

    @property
    def is_in_trouble(self) -> bool:
        return self._in_trouble > 0

    async def exchange(self, ended: Sequence[tuple[Lease, Outcome]], want: Want | None) -> tuple[Taken, bool]:
        """The answer, and whether one was lost before: what was reported may be repeated, and what was taken is
        answered again."""
        pause = timedelta(milliseconds=100)
        repeats = False
        try:
            while True:
                try:
                    return await self._source.exchange(ended, want), repeats
                except StoreTooNew:
                    raise
                except StoreError as trouble:
                    wait = pause * (0.5 + self._world.chance.random())
                    # Often within one lease: every holder has no more after an outage, and leases whose answer was
                    # lost are beaten for by nobody.
                    pause = min(pause * 2, LONGEST_PAUSE, self._lease_for / 8)
                    self._in_trouble += not repeats
                    repeats = True
                    _log.warning("store: %s; trying again in %.1f s", trouble, wait.total_seconds())
                    await self._world.sleep(wait)
                    if want is not None:
                        want = msgspec.structs.replace(want, repeats=True)
        finally:
            self._in_trouble -= repeats

    async def find_strays(
        self, want: Want, known: Callable[[], list[Lease]], found: Callable[[list[Lease]], None]
    ) -> None:
        """A claim whose answer was lost may reach the store after its own repetition: then it takes leases that nobody
        knows. For a while they are looked for, by the name of the call."""
        again = msgspec.structs.replace(want, limit=0, repeats=True)
        for _ in range(max(2, int(STRAYS_FOR / (self._lease_for / 2)))):
            await self._world.sleep(self._lease_for / 2)
            # Before the question: what ends while it is under way is no stray.
            ours = {(lease.seq, lease.fence) for lease in known()}
            taken, _ = await self.exchange([], again)
            if strays := [lease for lease in taken.leases if (lease.seq, lease.fence) not in ours]:
                _log.warning("%d jobs were claimed by a call that had been given up: they go back", len(strays))
                found(strays)

"""Questions to the store that are asked until they are answered, so that nothing reported and nothing taken is lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.core.errors import StoreError, StoreTooNew
from daybreak.core.model import Lease, Outcome
from daybreak.system.ports import World
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, Source

_log = logging.getLogger("daybreak.worker")

LONGEST_PAUSE: Final = timedelta(seconds=5)


class ExchangeRetry:
    def __init__(self, source: Source, world: World, *, lease_for: timedelta) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._in_trouble = 0

    @property
    def is_in_trouble(self) -> bool:
        return self._in_trouble > 0

    async def exchange(
        self, ended: Sequence[tuple[Lease, Outcome]], want: ClaimRequest | None
    ) -> tuple[ExchangeResult, bool]:
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
                except StoreError as error:
                    wait = pause * (0.5 + self._world.chance.random())
                    # Often within one lease: every holder has no more after an outage, and leases whose answer was
                    # lost are beaten for by nobody.
                    pause = min(pause * 2, LONGEST_PAUSE, self._lease_for / 8)
                    self._in_trouble += not repeats
                    repeats = True
                    _log.warning("store: %s; trying again in %.1f s", error, wait.total_seconds())
                    await self._world.sleep(wait)
                    if want is not None:
                        want = msgspec.structs.replace(want, repeats=True)
        finally:
            self._in_trouble -= repeats

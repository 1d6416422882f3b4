"""Repeats an exchange with the store until the store replies, so that no outcome and no claimed job is lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.core.errors import StoreError, StoreTooNew
from daybreak.core.model import Ending, Lease
from daybreak.system.ports import World
from daybreak.worker.supervisor.lease_source import ClaimRequest, ExchangeResult, Source

STORE_LOG: Final = "daybreak.worker.store"  # for what keeps the worker from its store
_log = logging.getLogger(STORE_LOG)

MAX_PAUSE: Final = timedelta(seconds=5)


class ExchangeRetry:
    """Exchanges with backoff. `is_retrying` is True while at least one exchange has failed and not yet succeeded."""

    def __init__(self, source: Source, world: World, *, lease_for: timedelta) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._retrying = 0

    @property
    def is_retrying(self) -> bool:
        return self._retrying > 0

    async def exchange(
        self, ended: Sequence[tuple[Lease, Ending]], claim: ClaimRequest | None
    ) -> tuple[ExchangeResult, bool]:
        """The reply of the store, and whether the exchange was repeated.

        Repeating is safe: the store ignores an outcome that it has already written, and a repeated claim returns the
        jobs that the lost reply had."""
        pause = timedelta(milliseconds=100)
        is_repeated = False
        try:
            while True:
                try:
                    return await self._source.exchange(ended, claim), is_repeated
                except StoreTooNew:
                    raise
                except StoreError as error:
                    wait = pause * (0.5 + self._world.chance.random())
                    # Retry several times within one lease: after an outage every holder has only one lease to report,
                    # and nobody sends heartbeats for jobs that a lost reply claimed.
                    pause = min(pause * 2, MAX_PAUSE, self._lease_for / 8)
                    self._retrying += not is_repeated
                    is_repeated = True
                    _log.warning("store: %s; trying again in %.1f s", error, wait.total_seconds())
                    await self._world.sleep(wait)
                    if claim is not None:
                        claim = msgspec.structs.replace(claim, repeats=True)
        finally:
            self._retrying -= is_repeated

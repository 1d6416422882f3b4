"""Finds leases that this worker owns in the store and does not know of, and hands them back.

A claim whose reply was lost is repeated. The first request may still reach the store after its repetition and claim
more jobs. For a while the worker asks the store which leases it granted under the name of that call."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import Lease
from daybreak.core.units import counted, span
from daybreak.system.ports import World
from daybreak.worker.supervisor.lease_source import ClaimRequest, Source

_log = logging.getLogger("daybreak.worker")

MAX_DELAY: Final = timedelta(seconds=60)  # how late a request on a broken connection may still reach the store


class OrphanedLeases:
    """`known_leases` returns the leases that the pool holds; `on_found` gets those that it does not hold."""

    def __init__(
        self,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        known_leases: Callable[[], list[Lease]],
        on_found: Callable[[list[Lease]], None],
    ) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._known_leases = known_leases
        self._on_found = on_found
        self._calls: dict[str, tuple[ClaimRequest, int]] = {}  # each with the time until which it is checked
        self._checking: asyncio.Task[None] | None = None

    def watch(self, claim: ClaimRequest) -> None:
        """Check this claim, which was repeated, for a while."""
        assert claim.call is not None
        until = self._world.steady() + span(max(MAX_DELAY, 2 * self._lease_for))
        self._calls[claim.call] = (msgspec.structs.replace(claim, limit=0, repeats=True), until)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_all())

    async def _check_all(self) -> None:
        while self._calls:
            await self._world.sleep(self._lease_for / 2)
            for call, (claim, until) in list(self._calls.items()):
                # Ignore errors without a retry: the claim loop logs that the store is away, and the next check follows.
                with contextlib.suppress(StoreError):
                    await self._check(claim)
                if self._world.steady() >= until:
                    del self._calls[call]

    async def _check(self, claim: ClaimRequest) -> None:
        # Take the known leases before asking: a job that ends during the call is no longer held, but is not orphaned.
        known = {(lease.seq, lease.fence) for lease in self._known_leases()}
        result = await self._source.exchange([], claim)
        orphaned = [lease for lease in result.leases if (lease.seq, lease.fence) not in known]
        if orphaned:
            _log.warning(
                "%s claimed by a request whose reply was lost: handing back",
                counted(len(orphaned), "job was", "jobs were"),
            )
            self._on_found(orphaned)

    async def close(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

"""Leases that nobody knows of. A claim whose answer was lost may reach the store after its own repetition, and takes
some more. For a while they are looked for by the name of the call, and given back."""

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

EXPECTED_FOR: Final = timedelta(seconds=60)  # how late a claim may reach the store whose connection was cut


class OrphanedLeases:
    """`known` are the leases in hand; `found` takes those that are not."""

    def __init__(
        self,
        source: Source,
        world: World,
        *,
        lease_for: timedelta,
        known: Callable[[], list[Lease]],
        found: Callable[[list[Lease]], None],
    ) -> None:
        self._source = source
        self._world = world
        self._lease_for = lease_for
        self._known = known
        self._found = found
        self._calls: dict[str, tuple[ClaimRequest, int]] = {}  # until when each is looked for
        self._looking: asyncio.Task[None] | None = None

    def expect(self, want: ClaimRequest) -> None:
        """This claim was repeated."""
        assert want.call is not None
        until = self._world.steady() + span(max(EXPECTED_FOR, 2 * self._lease_for))
        self._calls[want.call] = (msgspec.structs.replace(want, limit=0, repeats=True), until)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self._calls:
            await self._world.sleep(self._lease_for / 2)
            for call, (want, until) in list(self._calls.items()):
                # Without a repetition of its own: who waits for the store is told of trouble, and the next look comes.
                with contextlib.suppress(StoreError):
                    await self._look_for(want)
                if self._world.steady() >= until:
                    del self._calls[call]

    async def _look_for(self, want: ClaimRequest) -> None:
        # Before the question: what ends while it is under way is no stray.
        ours = {(lease.seq, lease.fence) for lease in self._known()}
        taken = await self._source.exchange([], want)
        if strays := [lease for lease in taken.leases if (lease.seq, lease.fence) not in ours]:
            _log.warning(
                "%s claimed by a call that had been given up: handing back",
                counted(len(strays), "job was", "jobs were"),
            )
            self._found(strays)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

"""Keeps the store small and finishes what was left half done."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from daybreak.client.client import Client
from daybreak.client.duration_stats import forget_old
from daybreak.client.server_records import ANSWER_PARTS, forget_answers, forget_server_records
from daybreak.client.waits import forget_waits
from daybreak.core.model import Health, Put, QueueSettings, Record
from daybreak.core.units import moment, span
from daybreak.store.protocol import Purge, Store
from daybreak.system.ports import World

FORGET_EVERY: Final = timedelta(hours=1)
HEALTHS: Final = ("health", "task health")
HEALTH_FOR: Final = timedelta(hours=1)  # it fades within seconds


class Janitor:
    def __init__(
        self,
        store: Store,
        world: World,
        *,
        name: str,
        purge: Purge | None = None,
        every: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store = store
        self._client = Client(store, by=name, world=world)
        self._purge = purge or Purge()
        self._every = every
        self._world = world
        self._forget_at = world.steady() + span(FORGET_EVERY * world.chance.random())
        self._part: int | None = None

    async def tick(self) -> timedelta:
        purged = await self._store.purge(self._purge)
        if self._world.steady() >= self._forget_at:
            self._forget_at = self._world.steady() + span(FORGET_EVERY)
            await forget_old(self._store, self._world)
            await forget_waits(self._store)
            await forget_server_records(self._store, moment(self._world.wall()))
            await self._forget_healths(moment(self._world.wall()) - HEALTH_FOR)
        await self._forget_some_answers()
        for record in await self._store.records("queue"):
            if not msgspec.json.decode(record.value, type=QueueSettings).ranked:
                await self._client.rerank_queue(record.name)
        return timedelta() if purged.again else self._every

    async def _forget_some_answers(self) -> None:
        """One part of the answers each minute, because there may be many. The clock says which part, so that workers
        that restart often forget them all too."""
        now = self._world.wall()
        part = now // span(timedelta(minutes=1)) % ANSWER_PARTS
        if part != self._part:
            self._part = part
            await forget_answers(self._store, part, moment(now))

    async def _forget_healths(self, before: datetime) -> None:
        """Of what nobody has used since: whoever uses it again begins with what is usual."""
        for kind in HEALTHS:
            old = [record for record in await self._store.records(kind) if _is_older(record, before)]
            if old:
                await self._store.put([
                    Put(kind=kind, name=record.name, value=None, expect=record.revision) for record in old
                ])  # fmt: skip


def _is_older(record: Record, before: datetime) -> bool:
    try:
        at = msgspec.json.decode(record.value, type=Health).at
    except (msgspec.MsgspecError, ValueError):  # not ours to judge
        return False
    return at is not None and at.tzinfo is not None and at < before

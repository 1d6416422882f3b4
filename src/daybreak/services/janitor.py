"""Removes old jobs and old records from the store, and finishes an interrupted reordering of a queue."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from daybreak.client.client import Client
from daybreak.client.duration_stats import forget_old
from daybreak.client.job_logs import INDEX_PARTS, sweep_logs
from daybreak.client.job_stacks import forget_stacks
from daybreak.client.saga_record import forget_sagas
from daybreak.client.server_records import ANSWER_PARTS, forget_answers, forget_server_records
from daybreak.client.trend_records import purge_trends
from daybreak.client.waits import forget_waits
from daybreak.core.model import Health, Put, QueueSettings, Record
from daybreak.core.units import moment, span
from daybreak.store.protocol import Purge, Store
from daybreak.system.ports import World

RECORDS_INTERVAL: Final = timedelta(hours=1)
LOGS_INTERVAL: Final = timedelta(minutes=3)
HEALTH_KINDS: Final = ("health", "task health")
KEEP_HEALTH_FOR: Final = timedelta(hours=1)  # its weight halves every ten seconds


class Janitor:
    """Purges jobs at every tick, and removes old records about once an hour."""

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
        self._records_at = world.steady() + span(RECORDS_INTERVAL * world.chance.random())
        self._answer_part: int | None = None
        self._log_part: int | None = None

    async def tick(self) -> timedelta:
        purged = await self._store.purge(self._purge)
        if self._world.steady() >= self._records_at:
            self._records_at = self._world.steady() + span(RECORDS_INTERVAL)
            await forget_old(self._store, self._world)
            await forget_waits(self._store)
            await forget_sagas(self._store, moment(self._world.wall()))
            await forget_server_records(self._store, moment(self._world.wall()))
            await purge_trends(self._store, moment(self._world.wall()))
            await forget_stacks(self._store, moment(self._world.wall()))
            await self._remove_old_health(moment(self._world.wall()) - KEEP_HEALTH_FOR)
        await self._remove_some_answers()
        await self._sweep_some_logs()
        for record in await self._store.records("queue"):
            if not msgspec.json.decode(record.value, type=QueueSettings).ranked:
                await self._client.rerank_queue(record.name)
        return timedelta() if purged.again else self._every

    async def _remove_some_answers(self) -> None:
        """Remove old answers of servers, one part each minute, because there may be many. The clock decides which part,
        so that workers that restart often remove them all too."""
        now = self._world.wall()
        part = now // span(timedelta(minutes=1)) % ANSWER_PARTS
        if part != self._answer_part:
            self._answer_part = part
            await forget_answers(self._store, part, moment(now))

    async def _sweep_some_logs(self) -> None:
        """Delete the logs of jobs that are gone, one part every three minutes; the clock decides which, as for
        answers."""
        part = self._world.wall() // span(LOGS_INTERVAL) % INDEX_PARTS
        if part != self._log_part:
            self._log_part = part
            await sweep_logs(self._store, part, self._world.chance.random())

    async def _remove_old_health(self, before: datetime) -> None:
        """Remove the health of resources and tasks that nobody has used since. The next use starts with the default."""
        for kind in HEALTH_KINDS:
            old = [record for record in await self._store.records(kind) if _is_older(record, before)]
            if old:
                await self._store.put([
                    Put(kind=kind, name=record.name, value=None, expect=record.revision) for record in old
                ])  # fmt: skip


def _is_older(record: Record, before: datetime) -> bool:
    try:
        at = msgspec.json.decode(record.value, type=Health).at
    except (msgspec.MsgspecError, ValueError):  # written by another version: keep it
        return False
    return at is not None and at.tzinfo is not None and at < before

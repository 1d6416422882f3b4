"""The records of remote workers, which a dispatcher writes from their heartbeats: `workers` and `why` know them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.worker.supervisor import worker_record
from daybreak.worker.supervisor.worker_record import WorkerRecord

MAX_WORKERS: Final = 10_000
MAX_TASKS: Final = 1000
MAX_TEXT: Final = 200


class RemoteWorkers:
    """Writes the records of one store. `seen_at` is by the clock of the dispatcher, not by that of the worker. `via`
    is the address of the queues."""

    def __init__(self, store: Store, world: World, *, via: str) -> None:
        self._store = store
        self._world = world
        self._via = via
        self._known: dict[str, WorkerRecord] = {}

    @property
    def slots(self) -> int:
        """How many jobs the workers that were heard of can run at once."""
        now = moment(self._world.wall())
        return sum(one.processes + one.async_jobs for one in self._known.values() if one.is_live(now))

    def check(self, record: dict[str, Any]) -> WorkerRecord:
        """The record, checked: it comes from outside. Raises BadInput."""
        try:
            found = msgspec.convert(record, WorkerRecord)
        except msgspec.ValidationError as error:
            raise BadInput(f"it has no proper record of a worker: {error}") from None
        if len(found.id) > MAX_TEXT or len(found.name) > MAX_TEXT or len(found.tasks) > MAX_TASKS:
            raise BadInput("its record of a worker is too long")
        return found

    async def seen(self, worker: WorkerRecord) -> None:
        """The worker is alive."""
        if len(self._known) >= MAX_WORKERS and worker.id not in self._known:
            return
        record = msgspec.structs.replace(worker, seen_at=moment(self._world.wall()), via=self._via)
        self._known[worker.id] = record
        await self._store.put([record.put()])

    async def gone(self, worker: WorkerRecord) -> None:
        """The worker has stopped."""
        self._known.pop(worker.id, None)
        await self._store.put([Put(kind=worker_record.KIND, name=worker.id, value=None)])

    def silent(self, after: timedelta) -> list[str]:
        """Workers that were not heard of for so long. They are forgotten here."""
        now = moment(self._world.wall())
        found = [one.id for one in self._known.values() if now - one.seen_at > after]
        for worker in found:
            del self._known[worker]
        return found

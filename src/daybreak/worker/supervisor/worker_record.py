"""What a worker says of itself in the store, for people and for those who wait."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.store.protocol import Store
from daybreak.system.ports import World
from daybreak.tasks.registry import Program

KIND: Final = "worker"
REMEMBERED: Final = timedelta(days=1)
MOST_CODE: Final = 200
SILENT: Final = 5  # leases; the living tell of themselves every other lease, at least


class WorkerRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is unique per start. `seen_at` is by the worker's own clock, and only shown. `code` has the digest of each
    task's code, for at most `MOST_CODE` tasks: the record is written again and again. Tasks `on_loop` take one of the
    `async_jobs` slots, all others one of the `processes`."""

    id: str
    name: str
    app: str = ""
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)
    started_at: datetime
    seen_at: datetime
    queues: tuple[str, ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()
    code: dict[str, str] = {}
    on_loop: tuple[str, ...] = ()
    processes: int = 0
    async_jobs: int = 0
    lease_for: timedelta = timedelta(seconds=7)
    running: int = 0
    done: int = 0
    failed: int = 0
    stopping: bool = False

    def is_live(self, now: datetime) -> bool:
        return now - self.seen_at < 3 * self.lease_for

    def put(self) -> Put:
        return Put(kind=KIND, name=self.id, value=msgspec.json.encode(self))


def code_of(program: Program) -> dict[str, str]:
    """The digests of a program's code, by task: the first ones by name, so that workers keep the same ones."""
    found = {definition.name: definition.code for definition in sorted(program, key=lambda one: one.name)[:MOST_CODE]}
    return {name: code for name, code in found.items() if code}


def read(record: Record) -> WorkerRecord:
    return msgspec.json.decode(record.value, type=WorkerRecord)


async def forget_the_dead(store: Store, world: World) -> None:
    """Remove what workers left that were killed long ago; the recent dead are still of interest to people.

    The time in a record is its worker's, and one of the two clocks may be wrong: so it goes only if it also stays as it
    is for longer than anyone alive is silent."""
    now = moment(world.wall())
    silent = [
        (found, about) for found in await store.records(KIND) if now - (about := read(found)).seen_at > REMEMBERED
    ]
    if silent:
        await world.sleep(max(SILENT * about.lease_for for _, about in silent))
        await store.put([Put(kind=KIND, name=found.name, value=None, expect=found.revision) for found, _ in silent])

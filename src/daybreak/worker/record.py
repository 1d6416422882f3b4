"""What a worker says of itself in the store, for people and for those who wait."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.model import Put, Record
from daybreak.store import Store

KIND: Final = "worker"
REMEMBERED: Final = timedelta(days=1)


class WorkerRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is unique per start. `seen_at` is by the worker's own clock, and only shown."""

    id: str
    name: str
    app: str = ""
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)
    started_at: datetime
    seen_at: datetime
    queues: tuple[str, ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()
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


def read(record: Record) -> WorkerRecord:
    return msgspec.json.decode(record.value, type=WorkerRecord)


async def forget_the_dead(store: Store, now: datetime) -> None:
    """Remove what workers left that were killed long ago; the recent dead are still of interest to people."""
    dead = [
        Put(kind=KIND, name=found.name, value=None, expect=found.revision)
        for found in await store.records(KIND)
        if now - read(found).seen_at > REMEMBERED
    ]
    if dead:
        await store.put(dead)

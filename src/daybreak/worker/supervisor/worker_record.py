"""The record that each worker publishes about itself in the store, for people and for jobs that wait for other jobs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.store.protocol import Store
from daybreak.system import platform
from daybreak.system.ports import World
from daybreak.tasks.registry import Program
from daybreak.worker.supervisor.child_plan import ChildPlan

KIND: Final = "worker"
KEEP_DEAD_FOR: Final = timedelta(days=1)
MAX_CODE_DIGESTS: Final = 200
MAX_CHILDREN: Final = 64
# Leases after which a worker whose record did not change counts as dead. A live worker writes it every second lease, at
# least.
MAX_SILENT_LEASES: Final = 5


class WorkerRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is unique per start. `seen_at` is by the clock of the worker, and only for display.

    `code` has the digest of each task's code, for at most `MAX_CODE_DIGESTS` tasks, because the record is written
    often. Tasks in `on_loop` take one of the `async_jobs` slots, all others one of the `processes`. `batches` are its
    batch tasks, each with its version, its size, and its linger in seconds. Of several workers with `exports_metrics`,
    the first exports the metrics of the store by OpenTelemetry. `via` is the address of the message queues between a
    dispatcher and its remote workers, in the records of both.

    `memory` is the resident memory of the worker's own process in bytes, and `children` has the pid and the memory of
    at most `MAX_CHILDREN` child processes. Both are of the latest write, and unknown where reading them is costly."""

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
    batches: tuple[tuple[str, int, int, float], ...] = ()
    processes: int = 0
    async_jobs: int = 0
    lease_for: timedelta = timedelta(seconds=7)
    running: int = 0
    done: int = 0
    failed: int = 0
    stopping: bool = False
    memory: int | None = None
    children: tuple[tuple[int, int | None], ...] = ()
    exports_metrics: bool = False
    via: str = ""

    def is_live(self, now: datetime) -> bool:
        return now - self.seen_at < 3 * self.lease_for

    def put(self) -> Put:
        return Put(kind=KIND, name=self.id, value=msgspec.json.encode(self))


def record_of(plan: ChildPlan, worker: str, queues: tuple[str, ...], now: datetime, *, app: str = "") -> WorkerRecord:
    """The first record of a worker that starts now."""
    settings, program = plan.settings, plan.program
    return WorkerRecord(
        id=worker,
        name=settings.name or "worker",
        app=app,
        started_at=now,
        seen_at=now,
        queues=queues,
        tasks=tuple(sorted(program.known())),
        code=code_of(program),
        batches=tuple(
            (task, version, batching.size, (batching.linger or timedelta()).total_seconds())
            for (task, version), batching in sorted(program.batches().items())
        ),
        on_loop=tuple(sorted({name for name, _ in program.known(is_async=True)})),
        processes=settings.slots if program.known(is_async=False) else 0,
        async_jobs=settings.async_jobs if program.known(is_async=True) else 0,
        lease_for=settings.lease_for,
    )


def code_of(program: Program) -> dict[str, str]:
    """The digest of the code of each task: of the first tasks by name, so that all workers publish the same ones."""
    definitions = sorted(program, key=lambda definition: definition.name)[:MAX_CODE_DIGESTS]
    return {definition.name: definition.code for definition in definitions if definition.code}


def memory_now(pids: Iterable[int | None]) -> tuple[int | None, tuple[tuple[int, int | None], ...]]:
    """The memory of this process, and the pid and the memory of each child that is a process."""
    if not platform.MEMORY_IS_CHEAP:
        return None, ()
    children = [pid for pid in pids if pid is not None][:MAX_CHILDREN]
    return platform.memory_of(os.getpid()), tuple((pid, platform.memory_of(pid)) for pid in children)


def read(record: Record) -> WorkerRecord:
    return msgspec.json.decode(record.value, type=WorkerRecord)


async def remove_dead_workers(store: Store, world: World) -> None:
    """Remove the records of workers that were killed more than a day ago; newer ones are still of interest to people.

    The time in a record is by the clock of its worker, and either clock may be wrong. So a record is removed only if it
    also does not change for longer than any live worker is silent."""
    now = moment(world.wall())
    old = []
    for record in await store.records(KIND):
        worker = read(record)
        if now - worker.seen_at > KEEP_DEAD_FOR:
            old.append((record, worker))
    if old:
        await world.sleep(max(MAX_SILENT_LEASES * worker.lease_for for _, worker in old))
        await store.put([Put(kind=KIND, name=record.name, value=None, expect=record.revision) for record, _ in old])

"""Reads the workers' records in the store: which workers are live, which are gone, and which tasks they know."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.client import Client

LIVE_FOR_LEASES: Final = 3
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker's record as this program reads it. Every field but the id has a default, because a worker of an older or
    newer version may write other fields."""

    id: str
    name: str = ""
    host: str = ""
    pid: int = 0
    app: str | None = None
    started_at: datetime | None = None
    seen_at: datetime | None = None
    queues: tuple[str, ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()
    code: dict[str, str] = {}
    on_loop: tuple[str, ...] = ()
    batches: tuple[tuple[str, int, int, float], ...] = ()  # task, version, size, and linger in seconds
    processes: int | None = None
    async_jobs: int | None = None
    lease_for: timedelta = timedelta(seconds=7)
    running: int = 0
    done: int = 0
    failed: int = 0
    stopping: bool = False
    memory: int | None = None
    children: tuple[tuple[int, int | None], ...] = ()
    exports_metrics: bool = False
    via: str = ""  # the address of the message queues between a dispatcher and its remote workers

    def state(self, now: datetime) -> str:
        """`live`, `stopping`, `stopped` (it shut down cleanly) or `gone` (it crashed or lost the store)."""
        is_recent = self.seen_at is not None and now - self.seen_at <= LIVE_FOR_LEASES * self.lease_for
        if is_recent:
            return "stopping" if self.stopping else "live"
        return "stopped" if self.stopping else "gone"

    @property
    def total_memory(self) -> int | None:
        """Bytes of memory of the worker and its children; None where that is unknown."""
        if self.memory is None:
            return None
        return self.memory + sum(memory or 0 for _, memory in self.children)

    @property
    def is_dispatcher(self) -> bool:
        """Whether it runs no jobs itself and sends them to remote workers."""
        return bool(self.via) and not self.tasks

    def is_live(self, now: datetime) -> bool:
        """Whether the worker has updated its record within three leases."""
        return self.state(now) in ("live", "stopping")


async def read_workers(client: Client) -> list[WorkerInfo]:
    """All workers that have a record, the latest start first. Records that cannot be decoded are left out."""
    found = []
    for record in await client.store.records("worker"):
        try:
            found.append(msgspec.json.decode(record.value, type=WorkerInfo))
        except msgspec.MsgspecError:
            continue
    return sorted(_served(found), key=lambda worker: worker.started_at or _LONG_AGO, reverse=True)


def _served(workers: list[WorkerInfo]) -> list[WorkerInfo]:
    """The same workers; remote ones serve the queues that their dispatchers claim from."""
    claimed: dict[str, set[str]] = {}
    for worker in workers:
        if worker.is_dispatcher:
            claimed.setdefault(worker.via, set()).update(worker.queues)
    return [
        replace(worker, queues=tuple(sorted(claimed[worker.via])))
        if worker.via in claimed and not worker.is_dispatcher
        else worker
        for worker in workers
    ]


async def live_workers(client: Client, now: datetime | None = None) -> list[WorkerInfo]:
    """The workers that are live at `now`, the latest start first."""
    now = now or datetime.now(UTC)
    return [worker for worker in await read_workers(client) if worker.is_live(now)]


def known_tasks(workers: Iterable[WorkerInfo]) -> set[tuple[str, int]]:
    """The tasks, with their versions, that at least one of the workers can run."""
    return {task for worker in workers for task in worker.tasks}

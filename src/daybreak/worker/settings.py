"""The settings of a worker."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import ZERO
from daybreak.policy.admit import check_name


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """`processes` is the number of slots for sync tasks, one process each; `async_jobs` the number of slots for async
    tasks, all on the event loop of one child.

    Without `queues` the worker serves the queues of the app's tasks. A child is replaced between jobs, after
    `recycle_after` jobs or once it uses more than `memory_limit` bytes. With `isolation` None, children are processes
    where the user's code can be imported again, and threads elsewhere."""

    queues: tuple[str, ...] = ()
    processes: int | None = None
    async_jobs: int = 100
    lease_for: timedelta = timedelta(seconds=7)
    grace: timedelta = timedelta(seconds=10)
    cancel_grace: timedelta = timedelta(seconds=5)
    recycle_after: int | None = None
    memory_limit: int | None = None
    isolation: Literal["process", "thread"] | None = None
    allow_commands: bool = False
    name: str | None = None
    until_idle: bool = False

    @property
    def slots(self) -> int:
        """Slots for sync tasks: `processes`, or one per core."""
        return self.processes or os.cpu_count() or 1

    def check(self) -> None:
        """Raise BadInput if a setting is out of range."""
        for name, value in (("processes", self.processes), ("recycle_after", self.recycle_after)):
            if value is not None and not 1 <= value <= 10_000:
                raise BadInput(f"{name}={value}: it must lie between 1 and 10,000")
        if not 1 <= self.async_jobs <= 10_000:
            raise BadInput(f"async_jobs={self.async_jobs}: it must lie between 1 and 10,000")
        if self.memory_limit is not None and self.memory_limit < 16 * 1024 * 1024:
            raise BadInput(
                f"memory_limit={self.memory_limit} bytes: it must be at least 16 MiB, which a child needs to start; "
                "write 512 * 1024 * 1024, for example"
            )
        if not timedelta(milliseconds=200) <= self.lease_for <= timedelta(hours=1):
            raise BadInput(f"lease_for={self.lease_for}: it must lie between 0.2 s and 1 h")
        if self.grace < ZERO or self.cancel_grace < ZERO:
            raise BadInput("grace and cancel_grace cannot be negative")
        for queue in self.queues:
            check_name("queue", queue)

"""The queue of jobs that a feed brings, and its first limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daybreak.client.client import Client
from daybreak.core.model import Put, QueueSettings

if TYPE_CHECKING:
    from daybreak.api.task import Task


def own_queue(task: Task[..., Any]) -> str:
    """The queue of a fed task: its own, or one of its name, so that its limits concern nobody else."""
    return task.definition.queue if task.definition.queue != "default" else task.name


async def provide_queue(client: Client, queue: str, *, max_running: int | None, capacity: int | None) -> None:
    """Give a queue its limits, unless somebody has set some."""
    limits = QueueSettings(max_running=max_running, capacity=capacity)
    await client.store.put([Put(kind="queue", name=queue, value=msgspec.json.encode(limits), expect=0)])

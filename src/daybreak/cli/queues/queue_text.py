"""Finds a queue by name, and describes its settings in words."""

from __future__ import annotations

from collections.abc import Iterable

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.cli.errors import NotFound
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import QueueSettings
from daybreak.core.text import lasted, number
from daybreak.core.units import Priority, bucket


async def found(client: Client, name: str) -> QueueInfo:
    """The queue of this name, or NotFound with the closest name."""
    queues = await read_queues(client)
    for queue in queues:
        if queue.name == name:
            return queue
    raise NotFound(unknown(name, [queue.name for queue in queues]))


def unknown(name: str, known: Iterable[str]) -> str:
    """The error message for a queue that does not exist."""
    hint = closest(name, known)
    return f"no queue named {name!r}" + (f"; did you mean {hint!r}?" if hint else ": it has neither jobs nor settings")


def by_bucket(priorities: dict[int, int]) -> dict[Priority, int]:
    """The counts by named priority, zeros included."""
    counts = dict.fromkeys(Priority, 0)
    for level, n in priorities.items():
        counts[bucket(level)] += n
    return counts


def described(settings: QueueSettings) -> str:
    """The settings that differ from the defaults, in words."""
    parts = []
    if settings.paused:
        parts.append("paused")
    if settings.capacity is not None:
        parts.append(f"capacity {number(settings.capacity)}")
        if settings.when_full == "shed":
            parts.append("sheds")
    if settings.discipline == "aging":
        parts.append(f"aging, patience {lasted(settings.patience)}")
    if settings.weight != 1:
        parts.append(f"weight {settings.weight}")
    return ", ".join(parts)

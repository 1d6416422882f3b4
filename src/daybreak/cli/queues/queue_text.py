"""Looks up queues by name, and describes them in words."""

from __future__ import annotations

from collections.abc import Iterable

from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.cli.errors import NotFound
from daybreak.cli.text import lasted, number
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import QueueSettings
from daybreak.core.units import Priority, bucket


async def found(client: Client, name: str) -> QueueInfo:
    queues = await read_queues(client)
    for queue in queues:
        if queue.name == name:
            return queue
    raise NotFound(unknown(name, [queue.name for queue in queues]))


def unknown(name: str, known: Iterable[str]) -> str:
    hint = closest(name, known)
    return f"no queue named {name!r}" + (f"; did you mean {hint!r}?" if hint else ": it has neither jobs nor settings")


def by_bucket(priorities: dict[int, int]) -> dict[Priority, int]:
    """Counts under the named priorities, zeros included."""
    found = dict.fromkeys(Priority, 0)
    for level, n in priorities.items():
        found[bucket(level)] += n
    return found


def described(settings: QueueSettings) -> str:
    """What differs from the defaults, in words."""
    said = ["paused"] if settings.paused else []
    if settings.capacity is not None:
        said.append(f"capacity {number(settings.capacity)}" + (", sheds" if settings.when_full == "shed" else ""))
    said += [f"aging, patience {lasted(settings.patience)}"] if settings.discipline == "aging" else []
    said += [f"weight {settings.weight}"] if settings.weight != 1 else []
    return ", ".join(said)

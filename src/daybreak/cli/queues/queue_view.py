"""What a queue holds and how it is set, as it is now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from daybreak.cli.errors import NotFound
from daybreak.cli.text import lasted, number
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import DEFAULT_QUEUE, WAITING, QueueSettings, State
from daybreak.core.units import Priority, bucket

SETTINGS = tuple(name for name in QueueSettings.__struct_fields__ if name != "ranked")


class Queue(Struct, frozen=True, kw_only=True):
    """A queue as it is now."""

    name: str
    settings: QueueSettings
    is_set: bool
    states: dict[State, int]
    priorities: dict[int, int]  # of what waits
    tasks: dict[str, int]  # of what is unfinished

    @property
    def waiting(self) -> int:
        return sum(self.states.get(state, 0) for state in WAITING)

    def data(self) -> dict[str, Any]:
        settings = {name: getattr(self.settings, name) for name in SETTINGS}
        settings["patience"] = self.settings.patience.total_seconds()
        return {
            "name": self.name,
            **settings,
            "by_state": {state.value: self.states.get(state, 0) for state in State},
            "by_priority": {str(level): self.priorities.get(level, 0) for level in range(11)},
            "by_task": self.tasks,
        }


async def read_queues(client: Client) -> list[Queue]:
    """All queues that have settings or jobs, by name."""
    records = await client.store.records("queue")
    settings = {record.name: msgspec.json.decode(record.value, type=QueueSettings) for record in records}
    states: dict[str, dict[State, int]] = defaultdict(lambda: defaultdict(int))
    priorities: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    tasks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for tally in await client.tallies():
        if not tally.n:
            continue
        states[tally.queue][tally.state] += tally.n
        if tally.state in WAITING:
            priorities[tally.queue][tally.priority] += tally.n
        if tally.state in WAITING or tally.state is State.RUNNING:
            tasks[tally.queue][tally.task] += tally.n
    return [
        Queue(
            name=name,
            settings=settings.get(name, DEFAULT_QUEUE),
            is_set=name in settings,
            states=dict(states[name]),
            priorities=dict(priorities[name]),
            tasks=dict(tasks[name]),
        )
        for name in sorted({*settings, *states})
    ]


async def found(client: Client, name: str) -> Queue:
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

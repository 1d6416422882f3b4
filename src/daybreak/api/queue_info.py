"""A queue's counts of jobs and its settings, as they are now."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.model import DEFAULT_QUEUE, WAITING, QueueSettings, State

QUEUE_SETTINGS: Final = tuple(name for name in QueueSettings.__struct_fields__ if name != "ranked")


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A queue at one instant. `priorities` counts the waiting jobs by priority, `tasks` the unfinished jobs by task.
    `is_set` is False if nobody has set the queue, and its settings are the defaults."""

    name: str
    settings: QueueSettings
    is_set: bool
    states: dict[State, int]
    priorities: dict[int, int]
    tasks: dict[str, int]

    @property
    def waiting(self) -> int:
        """The number of jobs in the waiting states."""
        return sum(self.states.get(state, 0) for state in WAITING)


async def read_queues(client: Client) -> list[QueueInfo]:
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
        QueueInfo(
            name=name,
            settings=settings.get(name, DEFAULT_QUEUE),
            is_set=name in settings,
            states=dict(states[name]),
            priorities=dict(priorities[name]),
            tasks=dict(tasks[name]),
        )
        for name in sorted({*settings, *states})
    ]

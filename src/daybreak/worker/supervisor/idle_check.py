"""Checks whether any job is left for a worker that stops when there is none."""

from __future__ import annotations

from typing import Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import QueueSettings, State
from daybreak.store.protocol import Filter, Store
from daybreak.tasks.registry import Program

_UNFINISHED: Final = frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED, State.RUNNING})


async def is_idle(store: Store, program: Program, queues: tuple[str, ...]) -> bool:
    """Whether every job that this program could run has ended. Jobs of paused queues do not count."""
    known = program.known()
    try:
        paused = {
            record.name
            for record in await store.records("queue")
            if msgspec.json.decode(record.value, type=QueueSettings).paused
        }
        for queue in set(queues) - paused:
            tallies = await store.count(Filter(states=_UNFINISHED, queue=queue))
            if any(tally.n and (tally.task, tally.version) in known for tally in tallies):
                return False
    except StoreError:
        return False  # unknown while the store is away
    return True

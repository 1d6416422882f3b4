"""Whether anything is left to do for a worker that stops when there is not."""

from __future__ import annotations

from typing import Final

import msgspec

from daybreak.core.errors import StoreError
from daybreak.core.model import QueueSettings, State
from daybreak.store.protocol import Filter, Store
from daybreak.tasks.registry import Program

_LEFT: Final = frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED, State.RUNNING})


async def is_idle(store: Store, program: Program, queues: tuple[str, ...]) -> bool:
    """Every job that this code could run has ended; those of paused queues do not count."""
    known = program.known()
    try:
        paused = {
            found.name
            for found in await store.records("queue")
            if msgspec.json.decode(found.value, type=QueueSettings).paused
        }
        for queue in set(queues) - paused:
            tallies = await store.count(Filter(states=_LEFT, queue=queue))
            if any(tally.n and (tally.task, tally.version) in known for tally in tallies):
                return False
    except StoreError:
        return False  # not known
    return True

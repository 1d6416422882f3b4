"""Which tasks are next. Tasks are items of Daybreak's queues, one queue for each content of a model, so that a batch
never mixes models, and tasks of other models in between do not end it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Final

from daybreak import BadInput, Daybreak
from daybreak.core.model import State
from daybreak.store.protocol import Tally
from orchestration.priorities import task_priority
from orchestration.tasks import SimulationTask, task_of

PREFIX: Final = "simulations:"
NEAR: Final = 1  # levels between the tasks of one batch, so that an urgent one does not wait for much lower ones


class Selection:
    """Takes tasks from the queues of all models, each for one caller alone."""

    def __init__(self, app: Daybreak) -> None:
        self.app = app
        # Weak: a task that was taken and dropped comes back to its queue, so nothing here may keep it.
        self.held: weakref.WeakValueDictionary[str, SimulationTask] = weakref.WeakValueDictionary()

    async def tallies(self) -> list[Tally]:
        """How many tasks there are, by model, priority and state."""
        client = await self.app.client()
        return [tally for tally in await client.tallies(task="item") if tally.queue.startswith(PREFIX)]

    async def take(self, limit: int) -> list[SimulationTask]:
        """The most urgent task, and others of the same model within one level of it; nothing if none waits."""
        if limit < 1:
            raise BadInput(f"a batch of {limit}: write 1 or more")
        while True:
            queue, count, level = await self._choose()
            if not queue:
                return []
            tasks = []
            for lease in await self.app.queue(queue).atake(min(limit, count)):
                if task_priority(lease.priority).value - level > NEAR:
                    await lease.arelease()  # another process took what this batch was chosen for
                else:
                    tasks.append(task_of(await self.app.job(lease.id).ainfo(), lease))
            if tasks:
                self.held.update({task.task_id: task for task in tasks})
                return tasks

    async def _choose(self) -> tuple[str, int, int]:
        """The queue of the most urgent task, how many of it are within one level, and the level."""
        tallies = await self.tallies()
        if any(tally.n for tally in tallies if tally.state is State.SCHEDULED):
            await (await self.app.client()).store.advance()  # retries that have fallen due are queued again
            tallies = await self.tallies()
        waiting = [tally for tally in tallies if tally.state is State.QUEUED and tally.n]
        if not waiting:
            return "", 0, 0
        most_urgent = min(tally.priority for tally in waiting)
        heads = sorted({tally.queue for tally in waiting if tally.priority == most_urgent})
        queue = heads[0] if len(heads) == 1 else await self._oldest(heads)
        level = task_priority(most_urgent).value
        near = [t.n for t in waiting if t.queue == queue and task_priority(t.priority).value - level <= NEAR]
        return queue, sum(near), level

    async def _oldest(self, queues: Iterable[str]) -> str:
        """The queue whose first task was submitted first; none if others took them all meanwhile."""
        client = await self.app.client()
        heads = [(await client.find(queue=queue, state=State.QUEUED, limit=1)).jobs for queue in queues]
        first = min((jobs[0] for jobs in heads if jobs), key=lambda job: job.id, default=None)
        return "" if first is None else first.spec.queue

"""A queue without workers: add, take, and say how it went. The same store, the same rank, the same promises.

items   what stands in a queue      leases   an item in hand      taking   who keeps it alive"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from daybreak.api.hooks import Hooks
from daybreak.api.portal import Portal, blocking
from daybreak.api.queues.heartbeats import taker_of
from daybreak.api.queues.items import TASK, VERSION, Item, QueueStats, encoded, item_of
from daybreak.api.queues.leases import LeaseHandle
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, JobNotFound, QueueFull, WrongState
from daybreak.core.model import UNFINISHED, Job, JobSpec, QueueSettings, State
from daybreak.core.units import Priority, bucket, duration, moment
from daybreak.policy.admit import check_name
from daybreak.store.protocol import Position, Verdict, work_topic
from daybreak.tasks.import_guard import refuse_during_import

__all__ = ["Item", "LeaseHandle", "QueueHandle", "QueueStats"]

LOOK_EVERY: Final = timedelta(seconds=5)

Items = list[Item]
Leases = list[LeaseHandle]


class QueueHandle:
    """A handle on a queue. Every blocking method has a twin with an `a` before its name.

    What is added here has the task `item`: workers leave it alone, and `take` takes nothing else. The rest (size, list,
    stats, pause ...) is about everything in the queue, jobs of tasks included."""

    def __init__(self, sessions: Callable[[], Sessions], hooks: Hooks, name: str) -> None:
        check_name("queue", name)
        if not name:
            raise BadInput("a queue needs a name")
        self.name = name
        self._find_sessions = sessions
        self._hooks = hooks

    @property
    def _sessions(self) -> Sessions:
        return self._find_sessions()

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    # -- in ------------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aadd(
        self,
        data: object,
        *,
        id: str | None = None,  # noqa: A002 - the word users know
        priority: object = "normal",
        max_attempts: int | None = None,
        retry: object = None,
        metadata: Mapping[str, str] | None = None,
        delay: object = None,
    ) -> Item:
        """Accepted and durable when this returns. An id that was added before is the same item: it is answered as it
        stands, whatever the data. `retry` is written as for tasks, and has the attempts, delays and their growth."""
        refuse_during_import("add")
        client = await self._sessions.client()
        if retry is None:
            retry = max_attempts
        elif max_attempts is not None:
            raise BadInput(f"add(max_attempts={max_attempts!r}, retry={retry!r:.60}): a retry says how many; give one")
        spec = self._spec(client, data, id=id, priority=priority, retry=retry, meta=metadata, delay=delay)
        [answer] = await client.submit_many([spec])
        if answer.verdict is Verdict.FULL:
            raise QueueFull(self.name)
        if answer.verdict is Verdict.NEW:
            self._hooks.submitted(spec, answer.job)
        job = await client.get(answer.job)
        if job.spec.queue != self.name:
            raise BadInput(f"id {id!r} is that of a job in queue {job.spec.queue!r}: an id is given once in a store")
        return item_of(job)

    add = blocking(aadd)

    def _spec(self, client: Client, data: object, **options: Any) -> JobSpec:
        spec = client.spec(TASK, queue=self.name, version=VERSION, **options)
        return msgspec.structs.replace(spec, args=encoded(data))

    # -- out -----------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def atake(self, limit: int = 1, wait: object = None) -> Leases:
        """Up to `limit` items, the most urgent first, each for this caller alone. With `wait`, until at least one is
        there or the time has passed; an empty list means that there was none."""
        refuse_during_import("take")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
            raise BadInput(f"take(limit={limit!r}): from 1 to 1000 items at a time")
        patience = timedelta() if wait is None else duration(wait, "wait")
        sessions = self._sessions
        client, taker = await sessions.client(), taker_of(sessions)
        taker.begin()
        clock = asyncio.get_running_loop()
        until = clock.time() + patience.total_seconds()
        watch = client.store.watch([work_topic(self.name)])  # before the look, or what comes after it would be missed
        try:
            while True:
                taken = await taker.claim(client.store, self.name, limit)
                if taken.leases:
                    handles = [LeaseHandle(sessions, taker, self._hooks, lease) for lease in taken.leases]
                    taker.keep(handles)
                    for lease in taken.leases:
                        self._hooks.started(lease)
                    return handles
                left = timedelta(seconds=until - clock.time())
                if left <= timedelta():
                    return []
                await watch.wait(max(min(left, taken.next_in or left, LOOK_EVERY), timedelta(milliseconds=1)))
        finally:
            watch.close()

    take = blocking(atake)

    # -- looking -------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aget(self, id: str) -> Item:  # noqa: A002
        """An item as it stands now; JobNotFound if this queue has none of this id."""
        return item_of(await self._find(id))

    get = blocking(aget)

    @on_store_loop
    async def aposition(self, id: str) -> Position | None:  # noqa: A002
        """How many are taken before it; None if it is not queued."""
        await self._find(id)
        return await (await self._sessions.client()).position(id)

    position = blocking(aposition)

    @on_store_loop
    async def asize(self) -> int:
        """How many unfinished items there are: waiting, in hand or suspended."""
        counts = await (await self._sessions.client()).count(queue=self.name)
        return sum(counts[state] for state in UNFINISHED)

    size = blocking(asize)

    @on_store_loop
    async def alist(self, state: object = None) -> Items:
        """All items in this state, or in one of several; without one, all. Queued ones alone come in the order in which
        they will be taken, scheduled ones alone as they fall due, others newest first."""
        client = await self._sessions.client()
        return [item_of(job) async for job in client.find_all(queue=self.name, state=state)]

    list = blocking(alist)

    @on_store_loop
    async def astats(self) -> QueueStats:
        """The queue in numbers."""
        client = await self._sessions.client()
        states, priorities, queued = Counter[State](), Counter[Priority](), set[int]()
        for tally in await client.tallies(queue=self.name):
            states[tally.state] += tally.n
            if tally.state in UNFINISHED:
                priorities[bucket(tally.priority)] += tally.n
            if tally.state is State.QUEUED and tally.n:
                queued.add(tally.priority)
        done, failed = states[State.COMPLETED], states[State.FAILED]
        return QueueStats(
            by_state={state.value: states[state] for state in State},
            by_priority={level.name.lower(): priorities[level] for level in Priority},
            active=sum(states[state] for state in UNFINISHED),
            total=states.total(),
            success_rate=done / (done + failed) if done + failed else None,
            oldest_wait=await self._oldest_wait(client, queued),
        )

    stats = blocking(astats)

    async def _oldest_wait(self, client: Client, priorities: set[int]) -> timedelta | None:
        """Within a priority the first in rank is the oldest. Of a queue so long that one page does not reach a
        priority, what was looked at counts."""
        heads = [
            job
            for priority in sorted(priorities)
            for job in (await client.find(queue=self.name, state=State.QUEUED, priority=priority, limit=1)).jobs
        ]
        if not heads:
            return None
        return max(moment(client.wall()) - min(job.created_at for job in heads), timedelta())

    async def _find(self, id: str) -> Job:  # noqa: A002
        job = await (await self._sessions.client()).get(id)
        if job.spec.queue != self.name:
            raise JobNotFound(id)
        return job

    # -- tidying -------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aremove(self, id: str) -> None:  # noqa: A002
        """Forget a finished item. WrongState if it is not finished: cancel it first, by `app.job(id).cancel()`."""
        await self._find(id)
        amendment = await (await self._sessions.client()).remove(id)
        if amendment.verdict == "refused":
            state = amendment.state.value if amendment.state else "unfinished"
            raise WrongState(id, state, "only finished items can be removed; cancel it first with app.job(id).cancel()")

    remove = blocking(aremove)

    @on_store_loop
    async def aclear_completed(self) -> int:
        """Forget all completed items; answers how many."""
        return await (await self._sessions.client()).amend_all("remove", queue=self.name, state=State.COMPLETED)

    clear_completed = blocking(aclear_completed)

    @on_store_loop
    async def aclear_failed(self) -> int:
        """Forget all failed items; answers how many."""
        return await (await self._sessions.client()).amend_all("remove", queue=self.name, state=State.FAILED)

    clear_failed = blocking(aclear_failed)

    # -- settings ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def apause(self) -> QueueSettings:
        """Nothing more is taken, by anyone; what is in hand goes on."""
        return await (await self._sessions.client()).pause(self.name)

    pause = blocking(apause)

    @on_store_loop
    async def aresume(self) -> QueueSettings:
        return await (await self._sessions.client()).unpause(self.name)

    resume = blocking(aresume)

    @on_store_loop
    async def asettings(self) -> QueueSettings:
        return await (await self._sessions.client()).queue(self.name)

    settings = blocking(asettings)

    @on_store_loop
    async def aset(self, /, **changes: Any) -> QueueSettings:
        """Change paused, max_running, capacity, when_full, discipline, patience or weight, while it is in use."""
        return await (await self._sessions.client()).set_queue(self.name, **changes)

    set = blocking(aset)

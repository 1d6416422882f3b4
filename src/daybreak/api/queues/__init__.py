"""Queues without workers: a program adds items, takes them, and reports their outcomes. The store, the order and the
guarantees are those of jobs.

| module | what it holds |
|---|---|
| `items` | the items of a queue as values |
| `leases` | the handle of a taken item |
| `bulk_changes` | retries or deletes many items |
| `consumer` | claims items, sends their heartbeats and reports their outcomes |"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from daybreak.api.hooks import Hooks
from daybreak.api.job_release import release_job
from daybreak.api.portal import Portal, blocking
from daybreak.api.queues.bulk_changes import clear, clearable_states, retry_failed
from daybreak.api.queues.consumer import consumer_of
from daybreak.api.queues.items import (
    TASK,
    VERSION,
    Item,
    QueueCounts,
    attempts_of,
    encoded,
    item_of,
    item_of_spec,
    with_flight,
)
from daybreak.api.queues.leases import LeaseHandle
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.client import Client, filter_of
from daybreak.core.errors import BadInput, JobNotFound, QueueFull, StoreUnavailable, WrongState
from daybreak.core.model import UNFINISHED, Job, JobSpec, QueueSettings, State
from daybreak.core.units import Priority, bucket, duration, moment
from daybreak.policy.admit import check_name
from daybreak.policy.parse_options import build_spec
from daybreak.policy.resources import parse_rate
from daybreak.store.protocol import Position, Verdict, work_topic
from daybreak.tasks.cache import Cache, parse_cache
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.options import check_submit_options

__all__ = ["Item", "LeaseHandle", "QueueCounts", "QueueHandle"]

POLL_EVERY: Final = timedelta(seconds=5)  # in case a wake-up is missed

F = TypeVar("F", bound=Callable[..., Any])
Items = list[Item]
Leases = list[LeaseHandle]


class QueueHandle:
    """A handle on a queue. Every blocking method has an async twin whose name starts with `a`.

    `add` gives its items the task `item`: workers do not run them, and `take` takes nothing else. The other methods
    (size, list, stats, pause ...) cover everything in the queue, including jobs of tasks."""

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

    # -- add -----------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aadd(
        self,
        data: object,
        *,
        id: str | None = None,  # noqa: A002 - the name that users know
        priority: object = "normal",
        max_attempts: int | None = None,
        retry: object = None,
        metadata: Mapping[str, Any] | None = None,
        delay: object = None,
        flight: Mapping[str, Any] | None = None,
        cache: Cache | bool | None = None,
    ) -> Item:
        """Add an item; it is accepted and durable when this returns. If an item with this id was added before, that
        item is returned as it is now, whatever the data.

        `flight` are the values that decide the result. An item whose result is known is completed at once; items of one
        flight that wait at the same time are taken once, and all get the result. `cache` says how long it is kept, and
        how many bytes; of a `Cache`, `ttl`, `size` and `version` count.

        `retry` takes the same values as for tasks: attempts, delays
        and their growth. With `max_attempts=0` the first failure is final, as with 1. The values of `metadata` may be
        anything that JSON has."""
        refuse_during_import("add")
        if retry is None:
            retry = attempts_of(max_attempts)
        elif max_attempts is not None:
            raise BadInput(
                f"add(max_attempts={max_attempts!r}, retry={retry!r:.60}): both set the number of attempts; pass one"
            )
        spec = self._spec(data, id=id, priority=priority, retry=retry, meta=metadata, delay=delay)
        if flight is not None:
            chosen = Cache() if cache is None else parse_cache(cache, "add()")
            if chosen is None:
                raise BadInput("add(flight=..., cache=False): leave flight out, and the item is not cached")
            spec = with_flight(spec, flight, chosen)
        elif cache:
            raise BadInput("add(cache=...) says how the result of a flight is kept: pass flight={'name': value} too")
        spool = self._sessions.spool
        client = await self._sessions.client() if spool is None else await spool.open_client([spec])
        if spool is None:
            assert client is not None
            return await self._send(client, spec)
        if client is not None:
            with contextlib.suppress(StoreUnavailable), spool.sending(1):
                return await self._send(client, spec)
        await spool.put_many([spec])
        self._hooks.submitted(spec, spec.id)
        return item_of_spec(spec, moment(self._sessions.world.wall()))

    add = blocking(aadd)

    async def _send(self, client: Client, spec: JobSpec) -> Item:
        [inserted] = await client.submit_many([spec])
        if inserted.verdict is Verdict.FULL:
            raise QueueFull(self.name)
        if inserted.is_new:
            self._hooks.submitted(spec, inserted.job)
        job = await client.get(inserted.job)
        if inserted.verdict is Verdict.CACHED:
            self._hooks.found(job)
        if job.spec.queue != self.name:
            raise BadInput(f"id {spec.id!r} belongs to a job in queue {job.spec.queue!r}: ids are unique in a store")
        return item_of(job)

    def _spec(self, data: object, **options: Any) -> JobSpec:
        sessions = self._sessions
        check_submit_options(options)
        given: Any = {"queue": self.name, **options}
        return build_spec(TASK, encoded(data), given, new_id=sessions.new_id(), by=sessions.by, version=VERSION)

    # -- take ----------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def atake(self, limit: int = 1, wait: object = None, id: str | None = None) -> Leases:  # noqa: A002
        """Take up to `limit` items, the most urgent first, exclusively for this caller. With `wait`, wait until there
        is at least one item or the time has passed. An empty list means that there was none.

        With `id`, take this item and no other, though others may be more urgent. An empty list means that it cannot be
        taken now: it is not queued, someone else has it, or the queue is paused or at its limit."""
        refuse_during_import("take")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
            raise BadInput(f"take(limit={limit!r}): the limit is a number from 1 to 1000")
        longest_wait = timedelta() if wait is None else duration(wait, "wait")
        sessions = self._sessions
        client, consumer = await sessions.client(), consumer_of(sessions)
        consumer.start()
        clock = asyncio.get_running_loop()
        until = clock.time() + longest_wait.total_seconds()
        # Watch before the claim, so that an item added after the claim is not missed.
        watch = client.store.watch([work_topic(self.name)])
        try:
            while True:
                claimed = await consumer.claim(client.store, self.name, limit, id)
                if claimed.leases:
                    handles = [LeaseHandle(sessions, consumer, self._hooks, lease) for lease in claimed.leases]
                    consumer.hold(handles)
                    for lease in claimed.leases:
                        self._hooks.started(lease)
                    return handles
                left = timedelta(seconds=until - clock.time())
                if left <= timedelta():
                    return []
                await watch.wait(max(min(left, claimed.next_in or left, POLL_EVERY), timedelta(milliseconds=1)))
        finally:
            watch.close()

    take = blocking(atake)

    # -- read ----------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aget(self, id: str) -> Item:  # noqa: A002
        """Return an item as it is now; JobNotFound if this queue has no item with this id."""
        return item_of(await self._find(id))

    get = blocking(aget)

    @on_store_loop
    async def aposition(self, id: str) -> Position | None:  # noqa: A002
        """Return how many items will be taken before it; None if it is not queued."""
        await self._find(id)
        return await (await self._sessions.client()).position(id)

    position = blocking(aposition)

    @on_store_loop
    async def asize(self) -> int:
        """Count the unfinished items: waiting, taken or suspended."""
        counts = await (await self._sessions.client()).count(queue=self.name)
        return sum(counts[state] for state in UNFINISHED)

    size = blocking(asize)

    @on_store_loop
    async def alist(self, state: object = None) -> Items:
        """List the items in one state or in several states; without a state, all items. Queued items alone come in the
        order in which they will be taken, scheduled items alone in the order of their times, others newest first."""
        client = await self._sessions.client()
        return [item_of(job) async for job in client.find_all(queue=self.name, state=state)]

    list = blocking(alist)

    @on_store_loop
    async def astats(self) -> QueueCounts:
        """Return the queue's counts by state and priority."""
        client = await self._sessions.client()
        states, priorities, queued = Counter[State](), Counter[Priority](), set[int]()
        for tally in await client.tallies(queue=self.name):
            states[tally.state] += tally.n
            if tally.state in UNFINISHED:
                priorities[bucket(tally.priority)] += tally.n
            if tally.state is State.QUEUED and tally.n:
                queued.add(tally.priority)
        done, failed = states[State.COMPLETED], states[State.FAILED]
        return QueueCounts(
            by_state={state.value: states[state] for state in State},
            by_priority={level.name.lower(): priorities[level] for level in Priority},
            active=sum(states[state] for state in UNFINISHED),
            total=states.total(),
            success_rate=done / (done + failed) if done + failed else None,
            oldest_wait=await self._oldest_wait(client, queued),
        )

    stats = blocking(astats)

    async def _oldest_wait(self, client: Client, priorities: set[int]) -> timedelta | None:
        """How long the oldest queued item has waited. Within a priority, the first item in rank order is the oldest. A
        store reads at most 10,000 jobs for a page, so in a longer queue a priority may be missing."""
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

    @on_store_loop
    async def ais_empty(self) -> bool:
        """Whether no item is unfinished."""
        counts = await (await self._sessions.client()).count(queue=self.name)
        return not any(counts[state] for state in UNFINISHED)

    is_empty = blocking(ais_empty)

    def __iter__(self) -> Iterator[Item]:
        """The unfinished items as they are now: first the queued ones in the order in which they will be taken, then
        the others by priority and age."""
        return iter(self._portal.run(self._snapshot()))

    async def __aiter__(self) -> AsyncIterator[Item]:
        for item in await self._snapshot():
            yield item

    @on_store_loop
    async def _snapshot(self) -> Items:
        client = await self._sessions.client()
        # One listing, so that an item whose state changes meanwhile is neither missed nor listed twice.
        jobs = [job async for job in client.find_all(queue=self.name, state=UNFINISHED)]
        ranks: dict[str, int] = {}
        if (await client.queue(self.name)).discipline != "fifo":
            queued = client.find_all(queue=self.name, state=State.QUEUED)
            ranks = {job.id: rank for rank, job in enumerate([job async for job in queued])}
        jobs.sort(key=lambda job: (job.state is not State.QUEUED, ranks.get(job.id, len(ranks)), job.priority, job.seq))
        return [item_of(job) for job in jobs]

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def on(self, *words: str) -> Callable[[F], F]:
        """Register a function that is called with the event when an item of this queue is `added`, `updated` or
        `removed` by this process; `*` means all three."""
        return self._hooks.on_queue(self.name, *words)

    # -- change --------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def arelease(self, id: str, *, charge: bool = False, note: str = "") -> None:  # noqa: A002
        """Take a stuck item away from whoever took it, and return it to its place in the queue. What its holder reports
        later has no effect; once the item is taken again, the holder gets LeaseLost. With `charge` the interrupted
        attempt counts, without it does not. WrongState if the item is not taken."""
        job = await self._find(id)
        client = await self._sessions.client()
        amendment = await release_job(client, id, charge=charge, note=note)
        if amendment.verdict == "refused":
            state = amendment.state.value if amendment.state else "gone"
            raise WrongState(id, state, "only an item that somebody has taken can be released")
        self._hooks.changed("released", job, by=client.by, state=amendment.state or State.QUEUED, note=note)

    release = blocking(arelease)

    @on_store_loop
    async def aretry_failed(self, rate: str | None = None) -> int:
        """Queue the failed items again, each with all its attempts, the most urgent and then the oldest first. Returns
        how many. With a rate such as "5/min", one by one at this rate; the call ends after the last one."""
        every = None if rate is None else parse_rate(rate, f"retry_failed of queue {self.name!r}")
        sessions = self._sessions
        return await retry_failed(await sessions.client(), self._hooks, sessions.world, self.name, every)

    retry_failed = blocking(aretry_failed)

    # -- remove --------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def aremove(self, id: str) -> None:  # noqa: A002
        """Delete a finished item. WrongState if it is not finished: cancel it first with `app.job(id).cancel()`."""
        job = await self._find(id)
        client = await self._sessions.client()
        amendment = await client.remove(id)
        if amendment.verdict == "refused":
            state = amendment.state.value if amendment.state else "unfinished"
            raise WrongState(id, state, "only finished items can be removed; cancel it first with app.job(id).cancel()")
        self._hooks.changed("removed", job, by=client.by)

    remove = blocking(aremove)

    @on_store_loop
    async def aclear(self, state: object = None) -> int:
        """Delete the items in one state or in several states; without a state, all but those that are taken. Returns
        how many. An unfinished item is cancelled first; a taken one cannot be cleared."""
        states = clearable_states(filter_of(state=state).states)
        return await clear(await self._sessions.client(), self._hooks, self.name, states)

    clear = blocking(aclear)

    @on_store_loop
    async def aclear_completed(self) -> int:
        """Delete all completed items, and return how many."""
        return await clear(await self._sessions.client(), self._hooks, self.name, frozenset({State.COMPLETED}))

    clear_completed = blocking(aclear_completed)

    @on_store_loop
    async def aclear_failed(self) -> int:
        """Delete all failed items, and return how many."""
        return await clear(await self._sessions.client(), self._hooks, self.name, frozenset({State.FAILED}))

    clear_failed = blocking(aclear_failed)

    # -- settings ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def apause(self) -> QueueSettings:
        """Pause the queue: nobody can take items from it, and workers start no jobs of it. Running ones continue."""
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
        """Change paused, max_running, capacity, when_full, discipline, patience or weight while the queue is in use."""
        return await (await self._sessions.client()).set_queue(self.name, **changes)

    set = blocking(aset)

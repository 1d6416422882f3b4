"""The items of one queue in a store of Daybreak: jobs of the task `item`, and the leases that this process holds.

The stores used here live in this process and never wait, so each call runs to its end in the thread that makes it, one
at a time. Leases are as short as can be: nobody but a queue that starts takes over a lease, and one that ran out is
still its holder's."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from daybreak.core.errors import StoreCorrupt, StoreError
from daybreak.core.model import (
    DEFAULT_QUEUE,
    UNFINISHED,
    Failure,
    HandedBack,
    Job,
    JobSpec,
    Lease,
    Lost,
    Options,
    Outcome,
    Put,
    QueueSettings,
    Retry,
    State,
)
from daybreak.policy.settle import settle
from daybreak.store.protocol import (
    Action,
    Amend,
    Amendment,
    Beat,
    Claim,
    Exchange,
    Filter,
    Query,
    Reap,
    Store,
    Verdict,
)

from .errors import ItemTakenError, QueueCorruptedError, QueueCriticalError, QueueError

T = TypeVar("T")

QUEUE: Final = "default"
TASK: Final = "item"
BY: Final = "pywats_queue"
LEASE_FOR: Final = timedelta(microseconds=1)
NO_RETRIES: Final = "no retries"  # the tag of an item with max_attempts=0, which the store keeps as 1


class Held:
    """A lease that this process holds. `is_marked`: work on the item has begun."""

    def __init__(self, lease: Lease, *, is_marked: bool) -> None:
        self.lease = lease
        self.is_marked = is_marked
        self.taken_at = time.monotonic()


class ItemStore:
    """One queue of items. `lock` makes several calls one step; it may be taken again by its thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = threading.RLock()
        self.held: dict[str, Held] = {}
        self.next_in: timedelta | None = None  # when an item falls due, as the last `take` found

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        with self.lock:
            try:
                work.send(None)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            except StoreCorrupt as error:
                raise QueueCorruptedError(str(error)) from error
            except StoreError as error:
                raise QueueCriticalError(str(error)) from error
            work.close()
            raise QueueError(
                f"the {self.store.traits.name} store waits for something; a queue needs one that never does"
            )

    def open(self) -> None:
        self.call(self.store.open())

    def close(self) -> None:
        self.call(self.store.close())

    # -- items ---------------------------------------------------------------------------------------------------------

    def add(
        self,
        item_id: str,
        args: bytes,
        *,
        priority: int,
        max_attempts: int,
        meta: dict[str, str] | None = None,
        retry: Retry | None = None,
    ) -> Verdict:
        """Add an item. Without a `retry` of its own it is tried again at once."""
        if retry is None:
            retry = Retry(strategy="fixed", attempts=max(max_attempts, 1), delay=timedelta(), jitter=0.0)
        spec = JobSpec(
            id=item_id,
            task=TASK,
            queue=QUEUE,
            args=args,
            priority=priority,
            options=Options(retry=retry, keep_completed=None, keep_failed=None),
            by=BY,
            tags=() if max_attempts else (NO_RETRIES,),
            meta=meta or {},
        )
        [inserted] = self.call(self.store.insert([spec]))
        return inserted.verdict

    def job(self, item_id: str) -> Job | None:
        [job] = self.call(self.store.get([item_id]))
        return job

    def jobs(self, states: Iterable[State]) -> list[Job]:
        """The jobs in these states, by priority and then as they came."""
        wanted, found, cursor = Filter(states=frozenset(states), queue=QUEUE), list[Job](), None
        with self.lock:
            while True:
                page = self.call(self.store.find(Query(filter=wanted, limit=1000, cursor=cursor)))
                found += page.jobs
                cursor = page.cursor
                if cursor is None:
                    return sorted(found, key=lambda job: (job.priority, job.seq))

    def counts(self) -> dict[State, int]:
        counts = dict.fromkeys(State, 0)
        for tally in self.call(self.store.count(Filter(queue=QUEUE))):
            counts[tally.state] += tally.n
        return counts

    def completed_ever(self) -> int:
        """How many items were completed since the store was created."""
        totals = self.call(self.store.totals(QUEUE))
        return sum(total.n for total in totals if total.what.startswith("completed"))

    def set_limits(self, *, capacity: int | None = None, max_running: int | None = None) -> None:
        """Limit the unfinished items, and those that are taken at a time."""
        settings = QueueSettings(capacity=capacity, max_running=max_running)
        value = msgspec.json.encode(settings)
        records = self.call(self.store.records("queue", QUEUE))
        if not records and settings == DEFAULT_QUEUE:
            return
        if not records or records[0].value != value:
            self.call(self.store.put([Put(kind="queue", name=QUEUE, value=value, by=BY)]))

    # -- leases --------------------------------------------------------------------------------------------------------

    def take(self, item_id: str | None = None, *, is_marked: bool = False) -> Held | None:
        """Lease the most urgent item, or the one with this id, if it can be had now. An item that is not marked has not
        begun: it is not charged an attempt if this process ends."""
        begins = 1 if is_marked else 0
        claim = Claim(
            worker=BY, queues=(QUEUE,), tasks=frozenset({(TASK, 1)}), lease_for=LEASE_FOR, begins=begins, job=item_id
        )
        with self.lock:
            answer = self.call(self.store.exchange(Exchange(claim=claim)))
            self.next_in = answer.next_in
            if not answer.leases:
                return None
            [lease] = answer.leases
            held = self.held[lease.job] = Held(lease, is_marked=is_marked)
            return held

    def begin(self, held: Held) -> None:
        """Work on the item begins."""
        lease = held.lease
        beat = Beat(seq=lease.seq, fence=lease.fence, job=lease.job, lease_for=LEASE_FOR, begun=True)
        [extended] = self.call(self.store.extend([beat]))
        if not extended.held:
            raise self._lost(lease)
        held.is_marked = True

    def end(
        self, held: Held, outcome: Outcome, *, attempts: int | None = None, failure: Failure | None = None
    ) -> State:
        """End a lease; policy decides what becomes of the item. `attempts` and `failure` replace those that it has
        then."""
        settlement = settle(held.lease, outcome, chance=random.random(), by=BY)  # noqa: S311 - jitter
        if attempts is not None:
            settlement = msgspec.structs.replace(settlement, attempt=attempts)
        if failure is not None:
            settlement = msgspec.structs.replace(settlement, failure=failure)
        with self.lock:
            self.held.pop(held.lease.job, None)
            [accepted] = self.call(self.store.exchange(Exchange(settle=[settlement]))).settled
        if not accepted:
            raise self._lost(held.lease)
        return settlement.state

    def recover(self) -> int:
        """Take over every lease, and hand the items back: charged if work on them had begun. Returns how many."""
        recovered = 0
        with self.lock:
            self.held.clear()
            while leases := self.call(self.store.reap(Reap(worker=BY, watched_for=timedelta(days=1)))):
                for lease in leases:
                    self.end(Held(lease, is_marked=True), Lost("the queue was opened again while this was processed"))
                recovered += len(leases)
        return recovered

    def _lost(self, lease: Lease) -> ItemTakenError:
        return ItemTakenError(
            f"item {lease.job} is no longer held by this queue: the queue was opened again, or the item was reset. "
            "Nothing was changed"
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    def amend(self, action: Action, item_id: str, *, priority: int | None = None, note: str = "") -> Amendment:
        amend = Amend(action=action, by=BY, jobs=(item_id,), priority=priority, note=note)
        return self.call(self.store.amend(amend)).amendments[0]

    def requeue_failed(self, job: Job, attempts: int) -> None:
        """Queue a finished item again, with these attempts already made."""
        with self.lock:
            self.amend("retry", job.id)
            if attempts:
                held = self.take(job.id)
                if held is not None:
                    self.end(held, HandedBack(unused=True), attempts=attempts)

    def remove(self, job: Job) -> None:
        """Delete an item, whatever its state."""
        with self.lock:
            if job.state in UNFINISHED:
                self.amend("cancel", job.id)
                held = self.held.get(job.id)
                if held is not None:
                    self.end(held, HandedBack())  # it was asked to stop, so this ends it as cancelled
            self.amend("remove", job.id)

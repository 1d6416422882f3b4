"""MemoryQueue: a priority queue in memory, safe for many threads. It does no file I/O."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from daybreak.core.model import UNFINISHED, Job, State
from daybreak.store.protocol import Verdict
from daybreak.stores.memory import MemoryStore

from .conversion import STATES, Content, content_of, item_of, refresh
from .errors import DuplicateItemError, ItemNotFoundError, QueueFullError
from .hooks import QueueHooks, call_hook
from .interface import BaseQueue
from .item_store import ItemStore
from .items import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, QueueItem, QueueItemStatus, checked_attempts
from .passes import Processor, run_pass
from .stats import QueueStats
from .transitions import fail, hand_back, move
from .waiters import Waiters

MARK_WITHIN: Final = timedelta(minutes=30)  # an item that get_next() gave and nobody marked goes back after this time


class MemoryQueue(BaseQueue):
    """Items by priority (1 first, 10 last), first in first out within a priority.

    Items live in a store of Daybreak; this class gives them the names of the pyWATS document. `add`, `get` and
    `get_next` return one and the same object for an item as long as somebody keeps it; lists return copies. `max_size`
    limits the unfinished items."""

    def __init__(
        self,
        max_size: int | None = None,
        default_max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        hooks: QueueHooks | None = None,
    ) -> None:
        self._max_size = max_size
        self._default_max_attempts = checked_attempts(default_max_attempts)
        self._hooks = hooks or QueueHooks()
        self._waiters = Waiters()
        self._live: weakref.WeakValueDictionary[str, QueueItem] = weakref.WeakValueDictionary()
        self._open()

    def _open(self) -> None:
        self._contents: dict[str, Content] = {}
        self._use(ItemStore(MemoryStore()))

    def _use(self, store: ItemStore) -> None:
        self._items_store = store
        store.set_limits(capacity=self._max_size)

    @property
    def _store(self) -> ItemStore:
        return self._items_store

    @property
    def _lock(self) -> threading.RLock:
        return self._store.lock

    # -- how an item's own content is kept -----------------------------------------------------------------------------

    def _job_id(self, item_id: str) -> str:
        return item_id

    def _insert(self, item: QueueItem) -> Verdict:
        verdict = self._store.add(
            self._job_id(item.id), b"{}", priority=item.priority, max_attempts=item.max_attempts, meta={}
        )
        if verdict is Verdict.NEW:
            self._contents[item.id] = content_of(item)
        return verdict

    def _content(self, job: Job) -> Content:
        return self._contents[job.id]

    def _forget(self, job: Job) -> None:
        self._contents.pop(job.id, None)

    def _keep(self, item: QueueItem, job: Job) -> None:
        """Keep what the caller changed of the content."""
        self._contents[job.id] = content_of(item)

    # -- add and take --------------------------------------------------------------------------------------------------

    def add(
        self,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueueItem:
        """Add an item. QueueFullError if the queue is full, DuplicateItemError if there is an item with this id."""
        attempts = self._default_max_attempts if max_attempts is None else max_attempts
        item = QueueItem.create(data, item_id, priority, attempts, metadata)
        with self._lock:
            verdict = self._insert(item)
            if verdict is Verdict.FULL:
                raise QueueFullError(
                    f"the queue is full: it has {self._max_size} unfinished items, its max_size. "
                    "Add the item again when some are done"
                )
            if verdict is not Verdict.NEW:
                raise DuplicateItemError(
                    f"the queue has an item {item.id!r} already; remove it first, or use another id"
                )
            job = self._require(item.id)
            refresh(item, self._item(job))
            self._live[item.id] = item
        self._waiters.wake()
        call_hook(self._hooks, "on_add", item, item.id)
        return item

    def get_next(self) -> QueueItem | None:
        """Take the most urgent pending item for the caller alone; None if there is none.

        Mark it PROCESSING and update it within 30 minutes, or it is handed back."""
        with self._lock:
            self._hand_back_forgotten()
            held = self._store.take()
            return None if held is None else self._current(self._job(held.lease.job))

    def get_next_any(self, include_suspended: bool = True) -> QueueItem | None:
        """As `get_next`, but a suspended item may be taken too, by its priority and age."""
        with self._lock:
            suspended = self._store.jobs({State.SUSPENDED}) if include_suspended else []
            pending = self._store.jobs({State.QUEUED, State.SCHEDULED}) if suspended else []
            first = min([*suspended[:1], *pending[:1]], key=lambda job: (job.priority, job.seq), default=None)
            if first is None or first.state is not State.SUSPENDED:
                return self.get_next()
            self._store.amend("resume", first.id)
            self._store.take(first.id)
            return self._current(self._job(first.id))

    def _hand_back_forgotten(self) -> None:
        before = time.monotonic() - MARK_WITHIN.total_seconds()
        while self._store.held:
            oldest = next(iter(self._store.held.values()))
            if oldest.is_marked or oldest.taken_at > before:
                return
            hand_back(self._store, oldest)

    # -- change --------------------------------------------------------------------------------------------------------

    def update(self, item: QueueItem) -> None:
        """Make the marks on the item true, and give the item the state that it has then.

        ItemNotFoundError if it was removed; ItemTakenError if somebody else has taken it since it was read."""
        with self._lock:
            job = self._require(item.id)
            move(self._store, job, item)
            self._follow(job, item)
        if item.is_pending:
            self._waiters.wake()
        call_hook(self._hooks, "on_update", item, item.id)

    def _follow(self, job: Job, item: QueueItem) -> None:
        """After a change of an item: bring up to date what stands for it here."""
        fresh = self._store.job(job.id)
        if fresh is None:  # completed, and such items are not kept
            self._forget(job)
            copy = replace(item)
        else:
            self._keep(item, fresh)
            copy = self._item(fresh)
        for one in {id(one): one for one in (item, self._live.get(item.id, item))}.values():
            refresh(one, copy)

    def fail(self, item: QueueItem, error: object) -> None:
        """End the processing of an item as FAILED, though it may have attempts left: `retry_failed` or the next
        `process_pending` tries it again."""
        with self._lock:
            job = self._require(item.id)
            fail(self._store, job, item.mark_failed(error))
            self._follow(job, item)
        call_hook(self._hooks, "on_update", item, item.id)

    def process_pending(self, processor: Processor, include_failed: bool = True) -> dict[str, int]:
        """Give each pending item to the processor, once. Returns the counts of `success`, `failed` and `skipped`."""
        return run_pass(self, processor, include_failed=include_failed)

    def remove(self, item_id: str) -> bool:
        """Delete an item, also one that is being processed. False if there is none with this id."""
        with self._lock:
            job = self._find(item_id)
            if job is None:
                return False
            self._delete(job)
        call_hook(self._hooks, "on_remove", item_id, item_id)
        return True

    def _delete(self, job: Job) -> None:
        self._store.remove(job)
        self._forget(job)

    def clear(self, status: QueueItemStatus | None = None) -> int:
        """Delete the items in this status, or all; returns how many."""
        with self._lock:
            removed = [item.id for item in (self if status is None else self.list_by_status(status))]
            for item_id in removed:
                self._delete(self._require(item_id))
        for item_id in removed:
            call_hook(self._hooks, "on_remove", item_id, item_id)
        return len(removed)

    def clear_completed(self) -> int:
        return self.clear(QueueItemStatus.COMPLETED)

    def clear_failed(self) -> int:
        return self.clear(QueueItemStatus.FAILED)

    def retry_failed(self) -> int:
        """Queue all failed items again; one whose attempts are used up gets all of them anew. Returns how many."""
        failed = self.list_failed()
        for item in failed:
            self.update(item.reset_to_pending())
        return len(failed)

    # -- read ----------------------------------------------------------------------------------------------------------

    def get(self, item_id: str) -> QueueItem | None:
        """Return the item with this id; None if there is none."""
        with self._lock:
            job = self._find(item_id)
            return None if job is None else self._current(job)

    def list_by_status(self, status: QueueItemStatus) -> list[QueueItem]:
        """Copies of the items in this status, by priority and then as they came."""
        states = STATES[status]
        if status == QueueItemStatus.PENDING:
            states |= {State.RUNNING}  # those that get_next() gave and nobody marked
        return [item for item in self._all(states) if item.status == status]

    def list_pending(self) -> list[QueueItem]:
        return self.list_by_status(QueueItemStatus.PENDING)

    def list_processing(self) -> list[QueueItem]:
        return self.list_by_status(QueueItemStatus.PROCESSING)

    def list_completed(self) -> list[QueueItem]:
        return self.list_by_status(QueueItemStatus.COMPLETED)

    def list_failed(self) -> list[QueueItem]:
        return self.list_by_status(QueueItemStatus.FAILED)

    def list_suspended(self) -> list[QueueItem]:
        return self.list_by_status(QueueItemStatus.SUSPENDED)

    def count_by_status(self, status: QueueItemStatus) -> int:
        return getattr(self.stats, QueueItemStatus(status).value)  # type: ignore[no-any-return]

    def count_pending(self) -> int:
        return self.stats.pending

    def count_processing(self) -> int:
        return self.stats.processing

    def count_completed(self) -> int:
        return self.stats.completed

    def count_failed(self) -> int:
        return self.stats.failed

    @property
    def size(self) -> int:
        """How many items there are, in any status."""
        return sum(self._store.counts().values())

    @property
    def is_empty(self) -> bool:
        return self.size == 0

    @property
    def max_size(self) -> int | None:
        return self._max_size

    @property
    def is_full(self) -> bool:
        return self._max_size is not None and self.stats.active >= self._max_size

    @property
    def stats(self) -> QueueStats:
        with self._lock:
            counts = self._store.counts()
            reserved = sum(not held.is_marked for held in self._store.held.values())
        numbers = {status.value: sum(counts[state] for state in states) for status, states in STATES.items()}
        numbers["pending"] += reserved
        numbers["processing"] -= reserved
        return QueueStats(**numbers)

    def get_stats(self) -> QueueStats:
        return self.stats

    def __iter__(self) -> Iterator[QueueItem]:
        """Copies of all items as they are now, by priority and then as they came."""
        return iter(self._all(UNFINISHED | {State.COMPLETED, State.FAILED}))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True  # a queue is a queue, also when it is empty

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and self._find(item_id) is not None

    async def wait_for_item(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the document's name
        """Wait until `get_next` has an item to give. False after `timeout` seconds."""
        return await self._waiters.wait(self._has_item, timeout)

    def _has_item(self) -> bool:
        counts = self._store.counts()
        return counts[State.QUEUED] + counts[State.SCHEDULED] > 0

    # -- the names that the document's diagram shows -------------------------------------------------------------------

    @property
    def _items(self) -> dict[str, QueueItem]:
        return {item.id: item for item in self}

    @property
    def _heap(self) -> list[QueueItem]:
        """What `get_next` has to give, in order."""
        return self._all(STATES[QueueItemStatus.PENDING])

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _job(self, job_id: str) -> Job:
        job = self._store.job(job_id)
        assert job is not None
        return job

    def _find(self, item_id: str) -> Job | None:
        return self._store.job(self._job_id(item_id))

    def _require(self, item_id: str) -> Job:
        job = self._find(item_id)
        if job is None:
            raise ItemNotFoundError(f"the queue has no item {item_id!r}: it was removed, or never added")
        return job

    def _item(self, job: Job) -> QueueItem:
        return item_of(job, self._store.held.get(job.id), self._content(job))

    def _all(self, states: frozenset[State]) -> list[QueueItem]:
        with self._lock:
            return [self._item(job) for job in self._store.jobs(states)]

    def _current(self, job: Job) -> QueueItem:
        """The object that stands for an item: the one that the caller has, brought up to date, or a new one."""
        fresh = self._item(job)
        live = self._live.get(fresh.id)
        if live is None:
            self._live[fresh.id] = fresh
            return fresh
        if live.origin != fresh.origin:
            refresh(live, fresh)
        return live

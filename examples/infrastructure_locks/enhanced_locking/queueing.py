"""PriorityQueue: pull requests that wait for the lock of a workspace, the most urgent first, equals as they came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from daybreak import Admission, Daybreak, DaybreakError, JobHandle, LeaseLost, Priority
from daybreak.api.locks import Lock
from daybreak.core.errors import JobNotFound
from daybreak.core.units import priority as as_priority
from enhanced_locking.fixed import check_fixed
from enhanced_locking.priorities import Project, PullRequest, lock_name

LOCKS: Final = "lock"  # the queue in which those who hold locks stand, and those who wait
LOOK_AGAIN: Final = 0.002  # seconds


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """`max_queue_size` is for all locks together, those that are held included. `batch_processing_size`,
    `processing_interval` and `enable_batching` have no effect: a lock is granted in the transaction that frees it."""

    max_queue_size: int = 1000
    batch_processing_size: int = 10
    processing_interval: timedelta = timedelta(milliseconds=100)
    max_wait_time: timedelta = timedelta(minutes=10)
    max_retries: int = 3
    priority_weights: Mapping[Priority, int] | None = None
    enable_batching: bool = True
    enable_metrics: bool = True

    def __post_init__(self) -> None:
        check_fixed(self, {"max_retries": 3, "priority_weights": None, "enable_metrics": True})


@dataclass(frozen=True)
class QueueResult:
    """`wait_time` is by the clock of the store. `fence` goes to whatever the lock protects."""

    success: bool
    wait_time: timedelta
    error: DaybreakError | None = None
    fence: int | None = None


class PriorityQueue:
    """`rule` judges every priority that is asked for, by the user it is asked for."""

    def __init__(self, config: QueueConfig, app: Daybreak, rule: Callable[[Admission], object] | None = None) -> None:
        self.config = config
        self.app = app
        self._rule = rule
        self._is_sized = False

    async def enqueue(
        self,
        project: Project,
        workspace: str,
        pull: PullRequest,
        user: str,
        priority: object = Priority.NORMAL,
    ) -> QueueItem:
        """In line when this returns, behind all of the same priority who returned before. NotAllowed by the rule,
        LockTimeout if the line is full."""
        if not self._is_sized:
            await self.app.queue(LOCKS).aset(capacity=self.config.max_queue_size)
            self._is_sized = True
        name = lock_name(project, workspace)
        self.judge(name, user, priority)
        lock = self.app.lock(name, priority=priority, wait=self.config.max_wait_time)
        item = QueueItem(self, lock, pull, user)
        await item.stand_in_line()
        return item

    def judge(self, name: str, user: str, priority: object) -> None:
        if self._rule is not None:
            asked = {"names": (name,)}
            self._rule(Admission(task=LOCKS, args=asked, by=user, queue=LOCKS, priority=as_priority(priority)))


class QueueItem:
    """One pull request in line, and then the lock that it holds."""

    def __init__(self, queue: PriorityQueue, lock: Lock, pull: PullRequest, user: str) -> None:
        self.pull = pull
        self.user = user
        self.lock = lock
        self.request_id = ""
        self._queue = queue
        self._acquiring = asyncio.create_task(lock.aacquire())

    async def stand_in_line(self) -> None:
        while not self._acquiring.done():
            self.request_id = self.lock.job or ""
            with contextlib.suppress(JobNotFound):
                await self._job.ainfo()
                return
            await asyncio.sleep(LOOK_AGAIN)
        self.request_id = (await self._acquiring).job or ""

    @property
    def _job(self) -> JobHandle[Any]:
        return self._queue.app.job(self.request_id)

    async def result(self) -> QueueResult:
        """Waits for it. Who stops waiting here stays in line: `cancel` leaves it."""
        error: DaybreakError | None = None
        try:
            await asyncio.shield(self._acquiring)
        except DaybreakError as trouble:
            error = trouble
        job = await self._job.ainfo()
        waited = (job.started_at or job.finished_at or job.created_at) - job.created_at
        return QueueResult(error is None, waited, error, job.fence if error is None else None)

    async def position(self) -> int | None:
        """How many stand before it; None once it is not in line."""
        return await self.lock.aposition()

    async def reprioritise(self, priority: object, user: str) -> None:
        """Where it stands by its time of arrival. The rule judges who asks, as for one that is new."""
        self._queue.judge(self.lock.names[0], user, priority)
        await self._job.areprioritise(priority)

    async def cancel(self) -> None:
        """Out of line, never granted; one that is granted already is given back."""
        if not self.lock.is_held:
            await self._job.acancel()
        await asyncio.wait([self._acquiring])
        if self.lock.is_held:
            with contextlib.suppress(LeaseLost):  # granted in that very moment: it ended as cancelled
                await self.lock.arelease()

    async def release(self) -> None:
        """LeaseLost if it was another's by now."""
        await self.lock.arelease()

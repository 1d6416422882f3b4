"""PriorityQueue: pull requests that wait for the lock of a workspace, the most urgent first, then by arrival."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from daybreak import Admission, BadInput, Daybreak, DaybreakError, JobHandle, LeaseLost, Priority
from daybreak.api.locks import Lock
from daybreak.core.errors import JobNotFound, StoreError, StoreUnavailable, WrongState
from daybreak.core.units import priority as as_priority
from daybreak.policy.retry import delay_for
from enhanced_locking.batching import Batches
from enhanced_locking.priorities import Project, PullRequest, lock_name
from enhanced_locking.retries import RetryPolicy, default_retry_policy
from enhanced_locking.weights import STEPS, Weights

LOCKS: Final = "lock"  # the queue of the jobs that hold locks or wait for them
POLL_EVERY: Final = 0.002  # seconds


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """`max_queue_size` counts the holders and waiters of all locks together. `docs/decisions/0026` says what each
    setting does."""

    max_queue_size: int = 1000
    batch_processing_size: int = 10
    processing_interval: timedelta = timedelta(milliseconds=100)
    max_wait_time: timedelta = timedelta(minutes=10)
    max_retries: int = 3
    priority_weights: Mapping[Priority, int] | None = None
    enable_batching: bool = True
    enable_metrics: bool = True

    def __post_init__(self) -> None:
        Weights(self.priority_weights)
        if self.batch_processing_size < 1 or self.processing_interval < timedelta() or self.max_retries < 0:
            raise BadInput(
                "QueueConfig: batch_processing_size must be 1 or more, processing_interval and max_retries 0 or more"
            )


@dataclass(frozen=True)
class QueueResult:
    """`wait_time` is measured by the clock of the store. Pass `fence` to the system that the lock protects."""

    success: bool
    wait_time: timedelta
    error: DaybreakError | None = None
    fence: int | None = None


class PriorityQueue:
    """`rule` checks every requested priority and the user who requests it. `retries` sets the delay before a request
    is sent again after the store could not accept it."""

    def __init__(
        self,
        config: QueueConfig,
        app: Daybreak,
        rule: Callable[[Admission], object] | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.config = config
        self.app = app
        self.weights = Weights(config.priority_weights)
        self.batches = Batches(
            config.batch_processing_size if config.enable_batching else 1, config.processing_interval
        )
        self.retries = retries or default_retry_policy()
        self._rule = rule
        self._is_set_up = False

    async def enqueue(
        self,
        project: Project,
        workspace: str,
        pull: PullRequest,
        user: str,
        priority: object = Priority.NORMAL,
    ) -> QueueItem:
        """Join the queue of waiters, behind earlier requests of the same priority. Raises NotAllowed if the rule
        refuses it, and LockTimeout if the queue is full of requests that are at least as urgent. A full queue drops its
        least urgent request for a more urgent one; the dropped request gets the error LockShed."""
        item = QueueItem(self, project, workspace, pull, user, priority)
        self.judge(item.name, user, priority)
        await self._set_up()
        await self.batches.turn(as_priority(priority))
        await item.stand_in_line()
        return item

    async def _set_up(self) -> None:
        if self._is_set_up:
            return
        settings: dict[str, Any] = {
            "capacity": self.config.max_queue_size,
            "when_full": "shed",  # low-priority requests are dropped first
            "discipline": "fifo",
        }
        if self.weights.are_given:
            settings |= {"discipline": "aging", "patience": self.config.max_wait_time / STEPS}
        await self.app.queue(LOCKS).aset(**settings)
        self._is_set_up = True

    def judge(self, name: str, user: str, priority: object) -> None:
        if self._rule is not None:
            asked = {"names": (name,)}
            self._rule(Admission(task=LOCKS, args=asked, by=user, queue=LOCKS, priority=as_priority(priority)))


class QueueItem:
    """One pull request that waits for a lock and then holds it. `request_id` is the id of its job. It changes when the
    request is sent again; `retry_count` counts that."""

    def __init__(
        self, queue: PriorityQueue, project: Project, workspace: str, pull: PullRequest, user: str, priority: object
    ) -> None:
        self.project, self.workspace, self.pull, self.user = project, workspace, pull, user
        self.name = lock_name(project, workspace)
        self.priority = queue.weights.level(queue.weights.rank(priority))
        self.queue_entry_time = datetime.now(UTC)
        self.retry_count = 0
        self.request_id = ""
        self._rank = queue.weights.rank(priority)
        self._queue = queue
        self.lock = self._new_lock()
        self._acquiring: asyncio.Task[None] | None = None

    def _new_lock(self) -> Lock:
        waited = datetime.now(UTC) - self.queue_entry_time
        left = max(self._queue.config.max_wait_time - waited, timedelta())
        return self._queue.app.lock(self.name, priority=self._rank, wait=left)

    async def _acquire(self) -> None:
        while True:
            try:
                await self.lock.aacquire()
            except DaybreakError as error:
                if self.retry_count >= self._queue.config.max_retries or not is_worth_a_retry(error):
                    raise
            else:
                return
            self.retry_count += 1
            chance = random.random()  # noqa: S311 - to spread retries
            await asyncio.sleep(delay_for(self._queue.retries.retry, self.retry_count, chance).total_seconds())
            self.lock = self._new_lock()

    async def stand_in_line(self) -> None:
        acquiring = self._acquiring = asyncio.create_task(self._acquire())
        while not acquiring.done():
            self.request_id = self.lock.job or ""
            with contextlib.suppress(JobNotFound, StoreError):
                await self._job.ainfo()
                return
            await asyncio.sleep(POLL_EVERY)
        await acquiring
        self.request_id = self.lock.job or ""

    @property
    def _job(self) -> JobHandle[Any]:
        return self._queue.app.job(self.request_id)

    async def result(self) -> QueueResult:
        """Wait for the lock. If this call is cancelled, the request stays in the queue; `cancel` removes it."""
        assert self._acquiring is not None
        error: DaybreakError | None = None
        try:
            await asyncio.shield(self._acquiring)
        except DaybreakError as refused:
            error = refused
        self.request_id = self.lock.job or self.request_id
        job = await self._job.ainfo()
        waited = (job.started_at or job.finished_at or job.created_at) - job.created_at
        return QueueResult(error is None, waited, error, job.fence if error is None else None)

    async def position(self) -> int | None:
        """How many requests are ahead; None if it does not wait."""
        return await self.lock.aposition()

    async def reprioritise(self, priority: object, user: str) -> None:
        """Change the priority; the time of arrival stays. The rule is applied as for a new request."""
        self._queue.judge(self.name, user, priority)
        self._rank = self._queue.weights.rank(priority)
        self.priority = self._queue.weights.level(self._rank)
        await self._job.areprioritise(self._rank)

    async def cancel(self) -> None:
        """Remove the request from the queue. If the lock was granted already, release it."""
        assert self._acquiring is not None
        if not self.lock.is_held:
            await self._job.acancel()
        await asyncio.gather(self._acquiring, return_exceptions=True)
        if self.lock.is_held:
            with contextlib.suppress(LeaseLost):  # granted at the same moment: it ended as cancelled
                await self.lock.arelease()

    async def release(self) -> None:
        """Release the lock; LeaseLost if it was lost before."""
        await self.lock.arelease()


def is_worth_a_retry(error: DaybreakError) -> bool:
    """Whether the store was unreachable, or the lock was granted and lost before this process noticed. A full queue, a
    timeout, and a request that was dropped or cancelled are final."""
    if isinstance(error, WrongState):
        return error.state == "failed"
    return isinstance(error, StoreUnavailable | LeaseLost)

"""`ExecutionQueueService`, with the methods of the document. Each is a thin name over the store, which keeps the order,
the cap, the slots and the payloads."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any, Final

from daybreak import Daybreak, Permanent, Priority
from daybreak.api.task import prepare
from daybreak.client.trend_stats import TrendStats
from daybreak.core.errors import BadInput, JobNotFound, LeaseLost, RecordChanged, Refused
from daybreak.core.model import UNFINISHED, WAITING, Job, State
from daybreak.core.units import bucket
from daybreak.store.protocol import Beat, Claim, Exchange
from execution_queue.events import PRIORITIES, ExecutionRequested, submit_of

EXECUTIONS: Final = "executions"
TASK: Final = "execute"
SCHEDULED_FOR: Final = timedelta(hours=1)  # after this time `try_schedule` gives up waiting for `release`
CANCELLED: Final = object()
LEVELS: Final = {name: Priority[name] for name in PRIORITIES}


class ExecutionTimedOut(Permanent):
    """The code ran longer than it may."""


class PodFailed(Permanent):
    """No pod ran the code to its end, which is no fault of the code."""


class QuotaExceeded(Refused):
    """The user has as many unfinished executions as one user may have."""

    def __init__(self, user: str, limit: int) -> None:
        super().__init__(f"user {user!r} has {limit} unfinished executions, and may have no more")


class QueueStatus(dict[str, int]):
    """`{"queue_depth": ..., "active_count": ...}`, also as attributes."""

    @property
    def queue_depth(self) -> int:
        return self["queue_depth"]

    @property
    def active_count(self) -> int:
        return self["active_count"]


class ExecutionQueueService:
    """The queue of executions. `user_limit` is how many unfinished executions a user may have; None for any number."""

    def __init__(self, app: Daybreak, *, user_limit: int | None = None) -> None:
        self._app = app
        self._user_limit = user_limit

    async def new_id(self) -> str:
        """An id for an execution that has none yet."""
        return (await self._app.client()).new_id()

    async def enqueue(self, event: ExecutionRequested, *, by: str = "") -> int:
        """Accept an execution; it is durable when this returns. Returns its position: how many executions are scheduled
        before it, of all priorities. The same event again is the same execution, also after it has ended. `by` is who
        asks, for its history."""
        if self._user_limit is None or not event.user_id:
            return await self._submit(event, by)
        # One submit of a user at a time, so that two at once cannot both be the last one that is allowed.
        async with self._app.lock(f"quota {event.user_id}", wait="30s"):
            if await self.find(event.execution_id) is None:
                unfinished = await self._app.acount(queue=EXECUTIONS, owner=event.user_id, state=list(UNFINISHED))
                if unfinished >= self._user_limit:
                    raise QuotaExceeded(event.user_id, self._user_limit)
            return await self._submit(event, by)

    async def _submit(self, event: ExecutionRequested, by: str) -> int:
        asked = submit_of(event)
        own_id = {"id": event.execution_id} if is_own_id(event.execution_id) else {}
        task = self._app.find_task(TASK).using(
            key=asked.key, priority=asked.priority, owner=asked.owner, queue=EXECUTIONS, **own_id
        )
        client = await self._app.client()
        job = await client.submit(await prepare(task, asked.args, by=by or client.by))
        position = await self._app.job(job).aposition()
        return 0 if position is None else position.ahead

    async def try_schedule(self, max_active: int) -> tuple[str, ExecutionRequested] | None:
        """Take the most urgent execution, if fewer than `max_active` are active. It stays active until `release`. For
        programs that schedule by themselves; workers do this on their own."""
        client = await self._app.client()
        while (await client.queue(EXECUTIONS)).max_running != max_active:
            with contextlib.suppress(RecordChanged):  # other callers set it, too
                await client.set_queue(EXECUTIONS, max_running=max_active)
        tasks = frozenset({(TASK, self._app.find_task(TASK).definition.version)})
        claim = Claim(worker=f"scheduler-{client.new_id()}", queues=(EXECUTIONS,), tasks=tasks, lease_for=SCHEDULED_FOR)
        leases = (await client.store.exchange(Exchange(claim=claim))).leases
        if not leases:
            return None
        lease = leases[0]
        beat = Beat(seq=lease.seq, fence=lease.fence, job=lease.job, lease_for=SCHEDULED_FOR, detach=True)
        await client.store.extend([beat])
        waits = TrendStats(client.store, self._app.world)  # as a worker does, for `queue.wait_time`
        waits.note_detached(lease)
        await waits.merge()
        job = await client.get(lease.job)
        return execution_id_of(job), request_of(job)

    async def release(self, execution_id: str, outcome: object = None) -> bool:
        """End an active execution, with a result or an exception: its slot is free. False if it is not active."""
        job = await self.find(execution_id)
        if job is None or job.state is not State.RUNNING:
            return False
        return await end_execution(self._app, job.id, job.fence, outcome)

    async def update_priority(self, execution_id: str, new_priority: str) -> bool:
        """Move a pending execution; it keeps its time of arrival. False if it is not pending."""
        job = await self.find(execution_id)
        if job is None or job.state not in WAITING:
            return False
        answer = await self._app.job(job.id).areprioritise(level_of(new_priority))
        return answer.verdict == "done"

    async def remove(self, execution_id: str, reason: str = "") -> bool:
        """Cancel an execution, pending or active. Its pod is deleted and its slot is free. False if there is none that
        has not ended."""
        job = await self.find(execution_id)
        if job is None or job.is_final:
            return False
        answer = await self._app.job(job.id).acancel(note=reason)
        return answer.verdict in ("done", "requested")

    async def get_queue_status(self) -> QueueStatus:
        counts = await (await self._app.client()).count(queue=EXECUTIONS)
        return QueueStatus(
            queue_depth=sum(counts.get(state, 0) for state in WAITING), active_count=counts.get(State.RUNNING, 0)
        )

    async def get_pending_by_priority(self) -> dict[str, int]:
        """How many executions are pending, by priority; a priority without any is left out."""
        found: Counter[str] = Counter()
        for tally in await (await self._app.client()).tallies(queue=EXECUTIONS):
            if tally.state in WAITING:
                found[bucket(tally.priority).name] += tally.n
        return {name: n for name, n in sorted(found.items(), key=lambda one: Priority[one[0]]) if n}

    async def increment_retry_count(self, execution_id: str) -> int:
        """Put an active execution that could not be started back into its place in the queue, and charge the attempt.
        Returns how many attempts were charged; the store counts them."""
        job = await self.find(execution_id)
        if job is None:
            raise JobNotFound(execution_id)
        if job.state is State.RUNNING:
            await self._app.job(job.id).arelease(charge=True, note="could not be started")
        return job.attempt

    async def find(self, execution_id: str) -> Job | None:
        """The job of an execution, by its id."""
        store = (await self._app.client()).store
        [job] = await store.get([execution_id])
        if job is None:
            [known] = await store.known_keys([execution_id])
            if known is not None and not known.is_spent:
                [job] = await store.get([known.job])
        return job if job is not None and job.spec.queue == EXECUTIONS and job.spec.task == TASK else None


async def end_execution(app: Daybreak, job: str, fence: int, outcome: object) -> bool:
    """End this attempt at an execution: with a result, an exception or `CANCELLED`. False if it has ended otherwise
    before, or if another attempt runs."""
    ways: dict[str, Any] = {"result": outcome}
    if outcome is CANCELLED:
        ways = {"cancelled": True}
    elif isinstance(outcome, BaseException):
        ways = {"error": outcome}
    try:
        await app.afinish(job, fence=fence, **ways)
    except (LeaseLost, Refused, JobNotFound):
        return False
    return True


async def name_of(app: Daybreak, job: str) -> str:
    """The id by which others know the execution of this job."""
    return execution_id_of(await (await app.client()).get(job))


def execution_id_of(job: Job) -> str:
    return job.spec.key or job.id


def request_of(job: Job) -> ExecutionRequested:
    """The event that asked for a job. It is kept as long as the job."""
    from daybreak import values  # noqa: PLC0415

    args = values.decode(job.spec.args)
    return ExecutionRequested(
        execution_id=execution_id_of(job), user_id=job.spec.owner or "", priority=bucket(job.priority).name, **args
    )  # fmt: skip


def is_own_id(text: str) -> bool:
    """Whether an id is one that Daybreak made: others would not sort by time."""
    try:
        return uuid.UUID(text).version == 7
    except ValueError:
        return False


def level_of(name: str) -> Priority:
    """A priority by its name. Raises BadInput for any other word."""
    level = LEVELS.get(name.upper())
    if level is None:
        raise BadInput(f"priority {name!r:.40}: write {', '.join(PRIORITIES)}")
    return level

"""`AdminExecutionService`: what administrators see and change."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from daybreak import Daybreak, values
from daybreak.core.errors import JobNotFound, WrongState
from daybreak.core.model import Job
from daybreak.core.units import bucket
from execution_queue.service import EXECUTIONS, TASK, ExecutionQueueService, execution_id_of, level_of
from execution_queue.settings import RuntimeSettingsLoader
from execution_queue.statuses import STATES, status_of

MAX_SCANNED: Final = 10_000
_BY_STATE_ALONE: Final = frozenset({"queued", "completed", "cancelled"})


class ExecutionView(Struct, frozen=True, kw_only=True):
    execution_id: str
    user_id: str
    status: str
    priority: str
    language: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    attempt: int
    error: str


class ExecutionList(Struct, frozen=True, kw_only=True):
    executions: list[ExecutionView]
    total: int
    limit: int
    skip: int
    has_more: bool


class QueueOverview(Struct, frozen=True, kw_only=True):
    queue_depth: int
    active_count: int
    max_concurrent: int
    by_priority: dict[str, int]


class AdminExecutionService:
    def __init__(self, app: Daybreak) -> None:
        self._app = app
        self._queue = ExecutionQueueService(app)

    async def list_executions(
        self,
        *,
        status: str | None = None,
        priority: str | None = None,
        user_id: str | None = None,
        limit: int = 50,
        skip: int = 0,
    ) -> ExecutionList:
        """One page, the newest first; pending ones in the order in which they will run."""
        where: dict[str, Any] = {"queue": EXECUTIONS, "task": TASK}
        if status is not None:
            where["state"] = list(STATES[status])
        if priority is not None:
            where["priority"] = level_of(priority)
        if user_id is not None:
            where["owner"] = user_id
        client = await self._app.client()
        found: list[Job] = []
        seen = 0
        async for job in client.find_all(**where):
            if status is not None and status not in _BY_STATE_ALONE and status_of(job) != status:
                continue
            seen += 1
            if skip < seen <= skip + limit:
                found.append(job)
            if seen >= MAX_SCANNED or (seen >= skip + limit and (status is None or status in _BY_STATE_ALONE)):
                break
        total = seen
        if status is None or status in _BY_STATE_ALONE:
            total = sum((await client.count(**where)).values())
        return ExecutionList(
            executions=[view_of(job) for job in found], total=total, limit=limit, skip=skip,
            has_more=skip + len(found) < total,
        )  # fmt: skip

    async def update_priority(self, execution_id: str, new_priority: str) -> ExecutionView:
        """Move a pending execution. Raises JobNotFound, or WrongState if it is not pending any more."""
        job = await self.get(execution_id)
        if not await self._queue.update_priority(execution_id, new_priority):
            raise WrongState(job.id, status_of(job), "only a pending execution can be moved")
        return view_of(await self.get(execution_id))

    async def get_queue_status(self) -> QueueOverview:
        status = await self._queue.get_queue_status()
        settings = await RuntimeSettingsLoader(self._app).load()
        return QueueOverview(
            queue_depth=status.queue_depth, active_count=status.active_count,
            max_concurrent=settings.max_concurrent_executions,
            by_priority=await self._queue.get_pending_by_priority(),
        )  # fmt: skip

    async def get(self, execution_id: str) -> Job:
        """The job of an execution. Raises JobNotFound."""
        job = await self._queue.find(execution_id)
        if job is None:
            raise JobNotFound(execution_id)
        return job


def view_of(job: Job) -> ExecutionView:
    args = values.decode(job.spec.args)
    return ExecutionView(
        execution_id=execution_id_of(job), user_id=job.spec.owner or "", status=status_of(job),
        priority=bucket(job.priority).name, language=args.get("language", "python"),
        created_at=job.created_at.isoformat(),
        started_at=None if job.started_at is None else job.started_at.isoformat(),
        finished_at=None if job.finished_at is None else job.finished_at.isoformat(),
        attempt=job.attempt, error="" if job.failure is None else job.failure.message,
    )  # fmt: skip

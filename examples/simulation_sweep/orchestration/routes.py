"""The article's route, beside Daybreak's own. It needs the role `read`, as those do."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from daybreak.core.errors import JobNotFound
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may
from orchestration.selection import PREFIX
from orchestration.tasks import SimulationTask, task_of

routes = Routes("simulations", prefix="/api")


class TaskAnswer(Struct, frozen=True):
    """The nine fields of the article."""

    task_id: str
    status: str
    progress: float
    submitted_at: str
    started_at: str | None
    completed_at: str | None
    execution_time: float | None
    retry_count: int
    error: str | None


@routes.get("/tasks/{task_id}", may("read"), answer=TaskAnswer, summary="The status of a simulation")
async def get_task_status(call: Call[None, None]) -> Any:
    """404 for an id that is no simulation."""
    task_id = call.path["task_id"]
    try:
        job = await call.server.app.job(task_id).ainfo()
    except JobNotFound:
        job = None
    if job is None or not job.queue.startswith(PREFIX):
        raise Problem(NOT_FOUND, f"no task {task_id}")
    call.check_queue(job.queue)
    return msgspec.to_builtins(answer_of(task_of(job)))


def answer_of(task: SimulationTask) -> TaskAnswer:
    return TaskAnswer(
        task_id=task.task_id,
        status=task.status.value,
        progress=task.progress,
        submitted_at=task.submitted_at.isoformat(),
        started_at=task.started_at.isoformat() if task.started_at else None,
        completed_at=task.completed_at.isoformat() if task.completed_at else None,
        execution_time=task.execution_time,
        retry_count=task.retry_count,
        error=task.error,
    )

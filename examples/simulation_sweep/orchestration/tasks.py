"""A request, a task and its result. A task is what the store knew when it was asked for; it does not change."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import total_ordering
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from daybreak import BadInput, JobInfo, State
from orchestration.priorities import TaskPriority, level_of, task_priority

if TYPE_CHECKING:
    from daybreak.api.queues import LeaseHandle

_made = itertools.count()
_STATUS: Final = {
    State.RUNNING: "RUNNING",
    State.COMPLETED: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELLED: "CANCELLED",
}


class TaskStatus(StrEnum):
    """Task lifecycle states."""

    QUEUED = "QUEUED"  # waiting in the priority queue, also for its next attempt
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"  # for good: a permanent error, or all attempts are used up
    CANCELLED = "CANCELLED"


@dataclass
class SimulationRequest:
    """What to simulate. The content of the model is pinned when the request is submitted."""

    model_file: str
    parameters: dict[str, Any] = field(default_factory=dict)
    simulation_time: float | None = None
    output_variables: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = Path(self.model_file).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"no model file {self.model_file}")
        self.model_file = str(path)


def request_from(given: Any) -> SimulationRequest:
    """What somebody calls a request: it has a `model_file`, `parameters`, and perhaps the other fields."""
    if isinstance(given, SimulationRequest):
        return given
    names = ("parameters", "simulation_time", "output_variables", "metadata")
    fields = {name: getattr(given, name) for name in names if hasattr(given, name)}
    return SimulationRequest(given.model_file, **fields)


@dataclass(frozen=True)
class SimulationResult:
    """`timeseries_data` is a dict with `Time` and a list for each output variable; or whatever was returned by the code
    that replaced a simulation."""

    task_id: str
    success: bool
    timeseries_data: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    error_message: str | None = None
    execution_time: float = 0.0
    cached: bool = False
    plecs_version: str | None = None
    error: Exception | None = field(default=None, compare=False, repr=False)

    def stored(self) -> dict[str, Any]:
        """As it is kept in the store."""
        return {
            "timeseries_data": self.timeseries_data,
            "metadata": self.metadata,
            "execution_time": self.execution_time,
            "cached": self.cached,
            "plecs_version": self.plecs_version,
        }


@total_ordering
@dataclass(frozen=True, eq=False)
class SimulationTask:
    """One task. Tasks are ordered by priority, and within a level as they were submitted: ids rise, clocks may not.

    One that is made by hand is for an executor, or for a heap of one's own: the store knows only those that were
    submitted."""

    task_id: str = field(default_factory=lambda: str(uuid4()))
    request: Any = None
    priority: TaskPriority = TaskPriority.NORMAL
    status: TaskStatus = TaskStatus.QUEUED
    progress: float = 0.0  # 0 to 100
    submitted_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started_at: datetime | None = None
    completed_at: datetime | None = None
    error: str | None = None
    retry_count: int = 0
    result: SimulationResult | None = None
    model: str = ""  # the pinned copy
    use_cache: bool = True
    lease: LeaseHandle | None = field(default=None, repr=False)
    place: str = field(default_factory=lambda: f"~{next(_made):015}", repr=False)  # within its level

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority", level_of(self.priority))
        if not self.model and self.request is not None:
            object.__setattr__(self, "model", str(self.request.model_file))

    def taken(self) -> LeaseHandle:
        """The right to run it, of whoever took it."""
        if self.lease is None:
            raise BadInput(f"task {self.task_id} was not taken here: get_next_task() and get_next_batch() take tasks")
        return self.lease

    @property
    def id(self) -> str:
        return self.task_id

    @property
    def created_at(self) -> datetime:
        return self.submitted_at

    @property
    def cache_hit(self) -> bool:
        return self.result is not None and self.result.cached

    @property
    def execution_time(self) -> float | None:
        if self.started_at is None or self.completed_at is None:
            return None
        return (self.completed_at - self.started_at).total_seconds()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SimulationTask) and other.task_id == self.task_id and other.status == self.status

    def __hash__(self) -> int:
        return hash(self.task_id)

    def __lt__(self, other: SimulationTask) -> bool:
        return (self.priority.value, self.place) < (other.priority.value, other.place)


def data_of(request: SimulationRequest, model: Path, *, use_cache: bool) -> dict[str, Any]:
    """A request as the data of a queue's item."""
    return {
        "model_file": request.model_file,
        "model": str(model),
        "parameters": dict(request.parameters),
        "simulation_time": request.simulation_time,
        "output_variables": list(request.output_variables),
        "metadata": dict(request.metadata),
        "use_cache": use_cache,
    }


def task_of(job: JobInfo, lease: LeaseHandle | None = None) -> SimulationTask:
    """A job of the store as a task."""
    data = job.args["data"]
    names = ("model_file", "parameters", "simulation_time", "output_variables", "metadata")
    request = SimulationRequest.__new__(SimulationRequest)  # its file may be gone: the pinned copy counts
    vars(request).update({name: data[name] for name in names})
    status = TaskStatus(_STATUS.get(job.state, "QUEUED"))
    progress = 100.0 if status is TaskStatus.COMPLETED else 100 * (job.progress or 0.0)
    return SimulationTask(
        task_id=job.id,
        request=request,
        priority=task_priority(job.priority),
        status=status,
        progress=round(progress, 1),
        submitted_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.finished_at,
        error=str(job.failure) if job.failure else None,
        retry_count=max(job.attempt - 1, 0),
        result=_result(job, status),
        model=data["model"],
        use_cache=data["use_cache"],
        lease=lease,
        place=job.id,
    )


def _result(job: JobInfo, status: TaskStatus) -> SimulationResult | None:
    if status is TaskStatus.COMPLETED:
        # A known result has the labels of the task that asked first: each task has its own.
        own = {"metadata": job.args["data"]["metadata"], "cached": job.cached_from is not None}
        return SimulationResult(job.id, success=True, **{**job.result, **own})
    if status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
        text = str(job.failure) if job.failure and status is TaskStatus.FAILED else "the task was cancelled"
        return SimulationResult(job.id, success=False, error_message=text)
    return None

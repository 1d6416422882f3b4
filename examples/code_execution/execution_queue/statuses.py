"""The states of a job in the words of the document."""

from __future__ import annotations

from typing import Any, Final, Literal

from daybreak.api.job_info import JobInfo
from daybreak.core.model import WAITING, Job, Reason, State
from execution_queue.service import ExecutionTimedOut, PodFailed

Status = Literal["queued", "scheduled", "running", "completed", "failed", "timeout", "cancelled", "error"]
TERMINAL: Final = frozenset({"completed", "failed", "timeout", "cancelled", "error"})
STATES: Final[dict[str, tuple[State, ...]]] = {
    "queued": (*WAITING, State.SUSPENDED),
    "scheduled": (State.RUNNING,),
    "running": (State.RUNNING,),
    "completed": (State.COMPLETED,),
    "failed": (State.FAILED,),
    "timeout": (State.FAILED,),
    "cancelled": (State.CANCELLED,),
    "error": (State.FAILED,),
}


def status_of(job: Job | JobInfo) -> Status:
    """`scheduled` has a slot and no pod yet; `error` failed without a fault of the code."""
    match job.state:
        case State.RUNNING:
            return "running" if getattr(job, "detached", True) else "scheduled"
        case State.COMPLETED:
            return "completed"
        case State.CANCELLED:
            return "cancelled"
        case State.FAILED:
            return _failed(job)
        case _:
            return "queued"


def _failed(job: Any) -> Status:
    kind = "" if job.failure is None else job.failure.kind
    if job.reason is Reason.TIMEOUT or kind == ExecutionTimedOut.__name__:
        return "timeout"
    return "failed" if job.reason is Reason.ERROR and kind != PodFailed.__name__ else "error"

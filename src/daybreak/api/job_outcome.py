"""A job's outcome as a value, for programs that continue when a job fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from daybreak.core.errors import JobCancelled, JobFailed
from daybreak.core.model import Job, Reason, State

R_co = TypeVar("R_co", covariant=True)


class JobOutcome(Generic[R_co]):
    """How a job ended. Its text names the job and its final state.

    `ok` is True if the job completed; then `result` is what the task returned. Otherwise `reason` and `error` say why
    there is no result, and reading `result` raises what `job.result()` raises: JobFailed or JobCancelled."""

    __slots__ = ("_decode", "_job", "attempt", "error", "id", "key", "ok", "reason", "state", "task", "traceback")

    def __init__(self, job: Job, decode: Callable[[Job], R_co]) -> None:
        self._job: Final = job
        self._decode: Final = decode
        failure = job.failure
        is_failed = job.state is State.FAILED
        self.id: Final[str] = job.id
        self.task: Final[str] = job.spec.task
        self.key: Final[str | None] = job.spec.key
        self.state: Final[State] = job.state
        self.ok: Final[bool] = job.state is State.COMPLETED
        self.reason: Final[Reason | None] = (job.reason or Reason.ERROR) if is_failed else None
        self.error: Final[str] = _error_text(job) if is_failed else ""
        self.traceback: Final[str] = failure.traceback if is_failed and failure is not None else ""
        self.attempt: Final[int] = job.attempt

    @property
    def result(self) -> R_co:
        if self.ok:
            return self._decode(self._job)
        if self.state is State.CANCELLED:
            raise JobCancelled(self.id, self.task)
        reason = self.reason or Reason.ERROR
        raise JobFailed(self.id, self.task, reason.value, self.error, self.attempt, self.traceback)

    def __str__(self) -> str:
        name = f"job {self.id}" if self.key is None else f"job {self.key!r}"
        text = f"{name} ({self.task}) {'was ' if self.state is State.CANCELLED else ''}{self.state}"
        if self.reason is None:
            return text
        return f"{text} ({self.reason}, attempt {self.attempt})" + (f": {self.error}" if self.error else "")

    def __repr__(self) -> str:
        return f"<{self}>"


def _error_text(job: Job) -> str:
    if job.failure is None:
        return job.note
    return str(job.failure)

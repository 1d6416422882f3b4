"""What becomes of a saga when one of its jobs ends: a pure state machine.

A saga runs its steps one after the other (`forward`). If a step does not complete, or somebody cancels the saga, the
completed steps are undone in reverse order (`compensating`). It ends `completed` or `compensated`; it is `stuck` if an
undo failed too often, until somebody resumes it. At any time at most one of its jobs is awaited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.model import State

Phase = Literal["forward", "compensating", "completed", "compensated", "stuck"]
StepState = Literal["waiting", "running", "completed", "failed", "undoing", "undone"]

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
FINISHED: Final = frozenset({"completed", "compensated"})
UNDO_TRIES: Final = 5
FIRST_UNDO_DELAY: Final = timedelta(seconds=5)
LONGEST_UNDO_DELAY: Final = timedelta(minutes=10)


class StepProgress(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How far one step is. `job` is the job of the step, `undo_job` the latest job that undoes it.

    `undo_jobs` counts the jobs that were submitted to undo it; `undo_failures` counts those that failed since the saga
    was last resumed."""

    name: str
    can_undo: bool = False
    state: StepState = "waiting"
    job: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""
    undo_job: str = ""
    undo_jobs: int = 0
    undo_failures: int = 0
    undo_started_at: datetime | None = None
    undo_ended_at: datetime | None = None
    undo_error: str = ""


class SagaProgress(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How far a saga is. `error` says why it is compensated; `cancelled_by` is who asked for that."""

    steps: tuple[StepProgress, ...]
    phase: Phase = "forward"
    error: str = ""
    cancelled_by: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def current(self) -> int | None:
        """The number of the step that is running or being undone."""
        return next((n for n, step in enumerate(self.steps) if step.state in ("running", "undoing")), None)

    @property
    def current_job(self) -> str:
        """The job whose end the saga waits for; empty if there is none."""
        if self.current is None:
            return ""
        step = self.steps[self.current]
        return step.job if step.state == "running" else step.undo_job


class JobEnd(Struct, frozen=True, kw_only=True):
    """The end of a job, as the store knows it. `refused` says why the result of a completed job cannot be used."""

    job: str
    state: State
    at: datetime
    error: str = ""
    refused: str = ""


class NextJob(Struct, frozen=True, kw_only=True):
    """The job to submit with the new progress. `number` counts the jobs of this step, or of its undo, from 1."""

    step: int
    is_undo: bool
    number: int = 1
    delay: timedelta = timedelta()


class Decision(Struct, frozen=True):
    """The progress after a change, and the job that belongs to it."""

    progress: SagaProgress
    job: NextJob | None = None


def begin(steps: Sequence[tuple[str, bool]], new_id: str, at: datetime) -> Decision:
    """Start the first of these steps: their names, and whether they can be undone."""
    waiting = SagaProgress(steps=tuple(StepProgress(name=name, can_undo=can_undo) for name, can_undo in steps))
    return _start(waiting, 0, new_id, at)


def after_end(progress: SagaProgress, end: JobEnd, new_id: str, *, undo_tries: int = UNDO_TRIES) -> Decision | None:
    """What follows from the end of a job; None if nothing does. `new_id` is the id of the next job, if there is one."""
    for number, step in enumerate(progress.steps):
        if end.job == step.job:
            return _after_step(progress, number, end, new_id)
        if end.job == step.undo_job:
            return _after_undo(progress, number, end, new_id, undo_tries)
    return None


def cancel(progress: SagaProgress, by: str) -> SagaProgress | None:
    """Ask for compensation; None if the saga does not go forward any more. The running step is still awaited."""
    if progress.phase != "forward":
        return None
    return progress if progress.cancelled_by is not None else replace(progress, cancelled_by=by)


def resume(progress: SagaProgress, new_id: str, at: datetime) -> Decision | None:
    """Begin again with the undo that failed; None if the saga is not stuck."""
    if progress.phase != "stuck" or progress.current is None:
        return None
    again = replace(progress, phase="compensating")
    step = replace(again.steps[progress.current], undo_failures=0)
    return _undo(_with(again, progress.current, step), progress.current, new_id, at)


# -- the end of a step -------------------------------------------------------------------------------------------------


def _after_step(progress: SagaProgress, number: int, end: JobEnd, new_id: str) -> Decision | None:
    step = progress.steps[number]
    is_completed = end.state is State.COMPLETED
    if step.state == "failed" and is_completed:
        return _after_late_completion(progress, number, end, new_id)
    if step.state != "running":
        return None
    if not is_completed:
        error = end.error or end.state.value
        failed = replace(step, state="failed", ended_at=end.at, error=error)
        return _compensate(_failed(_with(progress, number, failed), step.name, error), new_id, end.at)
    completed = _with(progress, number, replace(step, state="completed", ended_at=end.at, error=end.refused))
    if end.refused:
        return _compensate(_failed(completed, step.name, end.refused), new_id, end.at)
    if progress.cancelled_by is not None:
        return _compensate(_failed(completed, step.name, "completed"), new_id, end.at)
    if number + 1 == len(progress.steps):
        return Decision(replace(completed, phase="completed"))
    return _start(completed, number + 1, new_id, end.at)


def _after_late_completion(progress: SagaProgress, number: int, end: JobEnd, new_id: str) -> Decision:
    """Somebody retried the job of a failed step, and it completed after the compensation began: it must be undone."""
    step = replace(progress.steps[number], state="completed", ended_at=end.at, error="")
    late = _with(progress, number, step)
    return _compensate(late, new_id, end.at) if progress.phase == "compensated" else Decision(late)


def _failed(progress: SagaProgress, step: str, error: str) -> SagaProgress:
    if progress.cancelled_by is not None:
        return replace(
            progress, error=f"cancelled by {progress.cancelled_by}" if progress.cancelled_by else "cancelled"
        )
    return replace(progress, error=f"{step}: {error}")


def _start(progress: SagaProgress, number: int, new_id: str, at: datetime) -> Decision:
    step = replace(progress.steps[number], state="running", job=new_id, started_at=at)
    return Decision(_with(progress, number, step), NextJob(step=number, is_undo=False))


# -- compensation ------------------------------------------------------------------------------------------------------


def _compensate(progress: SagaProgress, new_id: str, at: datetime) -> Decision:
    """Undo the last completed step; without one, the saga has ended."""
    for number in reversed(range(len(progress.steps))):
        step = progress.steps[number]
        if step.state == "completed" and step.can_undo:
            return _undo(replace(progress, phase="compensating"), number, new_id, at)
    return Decision(replace(progress, phase="compensated"))


def _undo(
    progress: SagaProgress, number: int, new_id: str, at: datetime, delay: timedelta = timedelta()
) -> Decision:  # fmt: skip
    step = progress.steps[number]
    undoing = replace(
        step, state="undoing", undo_job=new_id, undo_jobs=step.undo_jobs + 1, undo_started_at=step.undo_started_at or at
    )
    job = NextJob(step=number, is_undo=True, number=undoing.undo_jobs, delay=delay)
    return Decision(_with(progress, number, undoing), job)


def _after_undo(
    progress: SagaProgress, number: int, end: JobEnd, new_id: str, undo_tries: int
) -> Decision | None:  # fmt: skip
    step = progress.steps[number]
    if step.state != "undoing":
        return None
    if end.state is State.COMPLETED:  # also if the saga was stuck and somebody retried the job
        undone = replace(step, state="undone", undo_ended_at=end.at, undo_error="")
        return _compensate(_with(progress, number, undone), new_id, end.at)
    if progress.phase == "stuck":
        return None
    error = end.error or end.state.value
    failed = replace(step, undo_failures=step.undo_failures + 1, undo_error=error)
    after = _with(progress, number, failed)
    if failed.undo_failures >= undo_tries:
        return Decision(replace(after, phase="stuck"))
    return _undo(after, number, new_id, end.at, delay=undo_delay(failed.undo_failures))


def undo_delay(failures: int) -> timedelta:
    """How long to wait before an undo is tried again."""
    return min(FIRST_UNDO_DELAY * (1 << min(failures - 1, 16)), LONGEST_UNDO_DELAY)


def _with(progress: SagaProgress, number: int, step: StepProgress) -> SagaProgress:
    return replace(progress, steps=(*progress.steps[:number], step, *progress.steps[number + 1 :]))

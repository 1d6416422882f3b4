"""What people and programs see of a saga."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from daybreak import values
from daybreak.client.client import Client
from daybreak.client.saga_changes import find_saga
from daybreak.client.saga_record import StoredSaga, read_sagas
from daybreak.core.model import Job, RedactedStruct, State
from daybreak.core.text import as_argument
from daybreak.policy.sagas import FINISHED, Phase, StepProgress, StepState


class StepInfo(Struct, frozen=True, kw_only=True):
    """One step of a saga. `job` ran it, and `undo_job` is the latest job that undoes it; both are empty before that.
    The state and the attempts of these two jobs are None if there is no such job (any more), or in a list of sagas."""

    name: str
    task: str
    undo_task: str | None
    state: StepState
    job: str
    started_at: datetime | None
    ended_at: datetime | None
    error: str
    undo_job: str
    undo_jobs: int
    undo_started_at: datetime | None
    undo_ended_at: datetime | None
    undo_error: str
    job_state: State | None = None
    attempts: int | None = None
    undo_job_state: State | None = None
    undo_attempts: int | None = None


class SagaInfo(RedactedStruct, frozen=True, kw_only=True):
    """A saga at one instant. `error` says why it is compensated, and `resume_command` what continues one that is
    stuck."""

    id: str
    name: str
    state: Phase
    steps: list[StepInfo]
    error: str
    cancelled_by: str | None
    by: str
    created_at: datetime
    changed_at: datetime
    encoded_context: bytes

    @property
    def context(self) -> dict[str, Any]:
        """The context now: the first one with what the steps returned."""
        decoded: dict[str, Any] = values.decode(self.encoded_context)
        return decoded

    @property
    def current(self) -> StepInfo | None:
        """The step that runs, is being undone, or cannot be undone."""
        return next((step for step in self.steps if step.state in ("running", "undoing")), None)

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    @property
    def is_cancelling(self) -> bool:
        """Whether it was cancelled, and its running step has not ended yet."""
        return self.cancelled_by is not None and self.state == "forward"

    @property
    def trouble(self) -> str:
        """Why it was compensated and, if it is stuck, at what and how it is continued."""
        step = self.current
        if self.state != "stuck" or step is None:
            return self.error
        return f"{self.error}; undoing {step.name} failed: {step.undo_error}; continue with: {self.resume_command}"

    @property
    def resume_command(self) -> str | None:
        return resume_command(self.id, self.state)


def resume_command(run_id: str, state: Phase) -> str | None:
    """The command that continues a saga that is stuck; None if it is not."""
    return shlex.join(["daybreak", "sagas", "resume", *as_argument(run_id)]) if state == "stuck" else None


def info_of_saga(found: StoredSaga) -> SagaInfo:
    saga = found.saga
    return SagaInfo(
        id=found.id,
        name=saga.name,
        state=saga.progress.phase,
        steps=[
            _step(step, definition.spec.task, None if definition.undo is None else definition.undo.task)
            for step, definition in zip(saga.progress.steps, saga.definition, strict=True)
        ],
        error=saga.progress.error,
        cancelled_by=saga.progress.cancelled_by,
        by=saga.by,
        created_at=saga.created_at,
        changed_at=saga.changed_at,
        encoded_context=bytes(saga.context),
    )


def _step(step: StepProgress, task: str, undo_task: str | None) -> StepInfo:
    return StepInfo(
        name=step.name, task=task, undo_task=undo_task, state=step.state, job=step.job, started_at=step.started_at,
        ended_at=step.ended_at, error=step.error, undo_job=step.undo_job, undo_jobs=step.undo_jobs,
        undo_started_at=step.undo_started_at, undo_ended_at=step.undo_ended_at, undo_error=step.undo_error,
    )  # fmt: skip


async def saga_info(client: Client, run_id: str) -> SagaInfo:
    """The saga with this id, and how the jobs of its steps are."""
    info = info_of_saga(await find_saga(client, run_id))
    ids = [job for step in info.steps for job in (step.job, step.undo_job) if job]
    jobs = {job.id: job for job in (await client.store.get(ids) if ids else []) if job is not None}
    return replace(info, steps=[_with_jobs(step, jobs.get(step.job), jobs.get(step.undo_job)) for step in info.steps])


def _with_jobs(step: StepInfo, job: Job | None, undo: Job | None) -> StepInfo:
    if job is not None:
        step = replace(step, job_state=job.state, attempts=job.attempt)
    return step if undo is None else replace(step, undo_job_state=undo.state, undo_attempts=undo.attempt)


async def all_sagas(client: Client, *, state: str | None = None, name: str | None = None) -> list[SagaInfo]:
    """The sagas of the store, the newest first; those in a state, or of a name."""
    found = [info_of_saga(one) for one in await read_sagas(client.store)]
    return [one for one in found if state in (None, one.state) and name in (None, one.name)]

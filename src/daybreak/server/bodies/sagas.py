"""Sagas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from daybreak.client.saga_record import MAX_ID
from daybreak.server.bodies.base import Answer, Cursor, Limit, Name, Request, StateName

SagaState = Literal["forward", "compensating", "completed", "compensated", "stuck"]


class SagaRow(Answer, frozen=True):
    """A saga in a list. `step` is the one that runs or is being undone; `completed` counts the steps that have
    completed and are not undone. A saga that is `stuck` has the command that continues it."""

    id: str
    name: str
    state: SagaState
    step: str | None
    steps: int
    completed: int
    error: str
    cancelled_by: str | None
    resume_command: str | None
    by: str
    created_at: str
    changed_at: str


class SagaQuery(Request, frozen=True):
    """`state` may name several."""

    state: Annotated[tuple[SagaState, ...], Meta(max_length=5)] = ()
    name: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class SagaList(Answer, frozen=True):
    """One page of sagas, the newest first. `counts` are the sagas of this name by state, on all pages. A `cursor` of
    null means that there are no more."""

    sagas: list[SagaRow]
    counts: dict[str, int]
    cursor: str | None


class SagaStepBody(Answer, frozen=True):
    """One step. `job` ran it, and `undo_job` is the latest of `undo_jobs` that undo it; both are empty before. Their
    states and attempts are null once they are removed."""

    name: str
    task: str
    undo_task: str | None
    state: Literal["waiting", "running", "completed", "failed", "undoing", "undone"]
    job: str
    started_at: str | None
    ended_at: str | None
    error: str
    undo_job: str
    undo_jobs: int
    undo_started_at: str | None
    undo_ended_at: str | None
    undo_error: str
    job_state: StateName | None
    attempts: int | None
    undo_job_state: StateName | None
    undo_attempts: int | None


class SagaBody(Answer, frozen=True):
    """A saga: the fields of `daybreak sagas show --json`. `error` says why it is compensated; `context_size` is in
    bytes."""

    id: str
    name: str
    state: SagaState
    error: str
    cancelled_by: str | None
    resume_command: str | None
    by: str
    created_at: str
    changed_at: str
    context: Any
    context_size: int
    steps: list[SagaStepBody]


class SagaStart(Request, frozen=True):
    """`saga` is the name of a saga that the app of the server declares. With an `id`, the same request again is the
    same saga."""

    saga: Name
    context: dict[str, Any] = {}
    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID)] | None = None


class SagaStarted(Answer, frozen=True):
    """`is_new` is false if the saga was started before under this id."""

    id: str
    is_new: bool

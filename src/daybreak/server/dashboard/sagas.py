"""Pages about sagas: the list, and one saga with the timeline of its steps."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from daybreak.api.views.job import plain_value
from daybreak.api.views.saga import saga_row
from daybreak.core.errors import SagaNotFound
from daybreak.core.model import State
from daybreak.core.text import counted
from daybreak.sagas.saga_info import SagaInfo, StepInfo, saga_info
from daybreak.sagas.saga_pages import page_of_sagas
from daybreak.server.bodies.sagas import SagaQuery
from daybreak.server.dashboard.renderer import query_text, render
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("dashboard", prefix="")
_READ: Final = may("read", needs_all_queues=True)
HTML: Final = "text/html"


class Entry(Struct, frozen=True, kw_only=True):
    """One line of the timeline: a step that ran, or the undo of one. `words` says what became of it; `job` is its
    latest job, `jobs` how many there were."""

    step: str
    task: str
    is_undo: bool
    state: str
    words: str
    job: str
    job_state: State | None
    jobs: int
    attempts: int | None
    started_at: datetime | None
    ended_at: datetime | None
    error: str


@routes.get("/sagas", _READ, query=SagaQuery, answer=str, answer_type=HTML, summary="Sagas")
async def show_sagas_page(call: Call[SagaQuery, None]) -> Any:
    """How far each saga is, the newest first, with a button that continues those that are stuck."""
    query = call.query
    page = await page_of_sagas(
        await call.client(), states=query.state, name=query.name, limit=query.limit, cursor=query.cursor
    )
    following = ""
    if page.cursor is not None:
        following = query_text(state=",".join(query.state), name=query.name, limit=query.limit, cursor=page.cursor)
    return render(
        call,
        "sagas.html",
        page="sagas",
        sagas=[(one, saga_row(one)) for one in page.sagas],
        counts=page.counts,
        query=query,
        next=following,
    )


@routes.get("/sagas/{saga}", _READ, answer=str, answer_type=HTML, refuses=(404,), summary="One saga")
async def show_saga_page(call: Call[None, None]) -> Any:
    """What ran, what was undone, where it is stuck and how it goes on; and its context."""
    try:
        info = await saga_info(await call.client(), call.path["saga"])
    except SagaNotFound as error:
        raise Problem(NOT_FOUND, str(error)) from None
    return render(
        call,
        "saga.html",
        page="sagas",
        saga=info,
        done=_done(info),
        entries=timeline(info),
        waiting=[step for step in info.steps if step.state == "waiting"],
        context=plain_value(info.encoded_context),
        context_size=len(info.encoded_context),
    )


def _done(info: SagaInfo) -> str:
    """How far it is, in words."""
    completed = sum(step.state in ("completed", "undoing", "undone") for step in info.steps)
    if info.state in ("forward", "completed"):
        return f"{completed} of {counted(len(info.steps), 'step')} completed"
    undone = sum(step.state == "undone" for step in info.steps)
    return f"{undone} of {counted(completed, 'completed step')} undone"


def timeline(info: SagaInfo) -> list[Entry]:
    """What has happened, in this order: the steps as they ran, then the undos in reverse."""
    ran = [_step(info, step) for step in info.steps if step.job]
    undone = [_undo(info, step) for step in reversed(info.steps) if step.undo_jobs]
    return ran + undone


def _step(info: SagaInfo, step: StepInfo) -> Entry:
    state: Literal["running", "failed", "completed"]
    state, words = "completed", "completed"
    if step.state == "running":
        state, words = "running", "being cancelled" if info.is_cancelling else "running"
    elif step.state == "failed":
        state, words = "failed", "did not complete"
    return Entry(
        step=step.name, task=step.task, is_undo=False, state=state, words=words, job=step.job,
        job_state=step.job_state, jobs=1, attempts=step.attempts, started_at=step.started_at, ended_at=step.ended_at,
        error=step.error,
    )  # fmt: skip


def _undo(info: SagaInfo, step: StepInfo) -> Entry:
    state, words = "completed", "undone"
    if step.state == "undoing":
        is_stuck = info.state == "stuck"
        state, words = ("failed", "stuck") if is_stuck else ("running", "being undone")
    return Entry(
        step=step.name, task=step.undo_task or "", is_undo=True, state=state, words=words, job=step.undo_job,
        job_state=step.undo_job_state, jobs=step.undo_jobs, attempts=step.undo_attempts,
        started_at=step.undo_started_at, ended_at=step.undo_ended_at, error=step.undo_error,
    )  # fmt: skip

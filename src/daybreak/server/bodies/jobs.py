"""Jobs, their events, and why they wait."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from daybreak.server.bodies.base import (
    Answer,
    Cluster,
    Cursor,
    Limit,
    Name,
    Past,
    PriorityWord,
    ReasonName,
    Request,
    StateName,
)


class ErrorBody(Answer, frozen=True):
    """The error of the latest attempt."""

    kind: str
    message: str
    traceback: str
    attempt: int


class NeedBody(Answer, frozen=True):
    resource: str
    slots: int


class JobBody(Answer, frozen=True):
    """A job: the same fields as `daybreak jobs show --json`. `waited_for` and `ran_for` are seconds."""

    id: str
    task: str
    version: int
    queue: str
    priority: int
    state: StateName
    reason: ReasonName | None
    attempt: int
    max_attempts: int
    retries: int
    args: Any
    result: Any
    error: ErrorBody | None
    progress: float | None
    fence: int
    run: str | None
    owner: str | None
    key: str | None
    tags: list[str]
    meta: dict[str, Any]
    resources: list[NeedBody]
    worker: str | None
    detached_until: str | None
    cached_from: str | None
    created_at: str
    updated_at: str
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    expires_at: str | None
    waited_for: float
    ran_for: float | None


class JobQuery(Request, frozen=True):
    """Selects jobs. `since` and `until` are an age, such as 1d, or an instant."""

    state: Annotated[tuple[StateName, ...], Meta(max_length=8)] = ()
    reason: ReasonName | None = None
    queue: Name | None = None
    task: Name | None = None
    run: Name | None = None
    owner: Name | None = None
    key: Name | None = None
    priority: PriorityWord | None = None
    tag: Name | None = None
    since: Past | None = None
    until: Past | None = None
    cluster: Cluster | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class JobPage(Answer, frozen=True):
    """One page of jobs. A `cursor` of null means that there are no more jobs."""

    jobs: list[JobBody]
    cursor: str | None


class JobResult(Answer, frozen=True):
    """How a job ended. An unfinished job (202) has only a state and its progress."""

    id: str
    state: StateName
    reason: ReasonName | None
    result: Any
    error: ErrorBody | None
    progress: float | None


class EventBody(Answer, frozen=True):
    """One event of a job. Fields that do not apply are left out."""

    n: int
    kind: str
    at: str
    by: str | None = None
    state: StateName | None = None
    reason: ReasonName | None = None
    priority: int | None = None
    attempt: int | None = None
    fence: int | None = None
    run_at: str | None = None
    deadline: str | None = None
    note: str | None = None
    error: str | None = None


class EventList(Answer, frozen=True):
    events: list[EventBody]


class LogQuery(Request, frozen=True):
    """`attempt` selects one attempt. `after` is the `next` of an earlier answer: only what came later is returned."""

    attempt: Annotated[int, Meta(ge=1)] | None = None
    after: Annotated[str, Meta(pattern="^[0-9]{1,15}-[0-9]{1,15}$")] | None = None


class LogPieceBody(Answer, frozen=True):
    """A part of the output without gaps. `start` counts the bytes of this run before it; `skipped` bytes right before
    it were left out. `fence` tells apart two runs of one attempt."""

    attempt: int
    fence: int
    start: int
    skipped: int
    text: str


class JobLogBody(Answer, frozen=True):
    """The output of a job, the oldest piece first. `next` is the place where it ends; it is empty if there is none."""

    pieces: list[LogPieceBody]
    next: str


class ProcessBody(Answer, frozen=True):
    """A process that a job has started. Only jobs that run commands show the whole command line."""

    pid: int
    command: str
    memory: int | None


class JobStackBody(Answer, frozen=True):
    """Where a running job is now. `stack` is its Python stack, the innermost call last; if it could not be read it is
    empty, and `note` says why. `pid` and `memory`, in bytes, are of the process that runs the job; `shared` says that
    other jobs run in it too. `text` has all of it for people, with control characters as escapes."""

    job: str
    attempt: int
    fence: int
    stack: str
    note: str
    worker: str
    host: str
    pid: int | None
    memory: int | None
    shared: bool
    processes: list[ProcessBody]
    taken_at: str | None
    text: str


class CauseBody(Answer, frozen=True):
    """One thing that keeps a job from running. `holders` are the ids of the jobs, or of the workers, in the way.
    `command` is the command that removes the cause."""

    kind: str
    text: str
    holders: list[str]
    command: str | None


class SagaPartBody(Answer, frozen=True):
    """What a job does in a saga: it runs this step, or undoes it."""

    id: str
    name: str
    step: str
    undo: bool


class WhyBody(Answer, frozen=True):
    """Why a job does not run, the most important cause first, and what it does in a saga. The expected start is a
    range; it is null if it cannot be predicted."""

    job: str
    state: StateName
    causes: list[CauseBody]
    saga: SagaPartBody | None
    starts_after: str | None
    starts_before: str | None


class CauseCountBody(Answer, frozen=True):
    """The number of waiting jobs with one cause; `subject` is the queue, the task or the resource."""

    kind: str
    subject: str
    jobs: int
    command: str | None


class WhySummary(Answer, frozen=True):
    """The causes of all waiting jobs, the most frequent first."""

    causes: list[CauseCountBody]

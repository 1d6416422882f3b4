"""Request and response bodies, and the parameters of queries. They are the schema of the OpenAPI document.

A request with a field that is not listed here is refused. Durations in requests are text such as "90s" or "1h30m"; in
answers they are seconds. Instants are ISO 8601 with a time zone. An answer may get more fields in a later version."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from daybreak.core.events import KINDS
from daybreak.policy.admit import NAME_LIMIT

StateName = Literal[
    "scheduled", "blocked", "queued", "running", "suspended", "completed", "failed", "cancelled"
]  # fmt: skip
ReasonName = Literal["error", "exhausted", "timeout", "expired", "shed", "lost", "upstream"]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
Code = Annotated[str, Meta(min_length=1, max_length=100)]

EXAMPLE_ID: Final = "0199b5a1-7c00-7a3e-9d2c-5f0e6a1b2c3d"


class Request(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a caller sends: nothing beside the fields that are listed."""


class Answer(Struct, kw_only=True, frozen=True):
    """What the server sends."""


class ProblemBody(Answer, frozen=True):
    """A problem document (RFC 9457). `hint` says what to do, `job` and `queue` name what is in the way."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    job: str | None = None
    queue: str | None = None


# -- the live feed -----------------------------------------------------------------------------------------------------

EventKind = Literal[KINDS]  # type: ignore[valid-type]


class LiveQuery(Request, frozen=True):
    """Which events: those that agree with every parameter that is given. A parameter may have several values."""

    job: tuple[Name, ...] = ()
    run: tuple[Name, ...] = ()
    queue: tuple[Name, ...] = ()
    task: tuple[Name, ...] = ()
    owner: tuple[Name, ...] = ()
    kind: tuple[EventKind, ...] = ()
    after: Annotated[str, Meta(min_length=1, max_length=4000)] | None = None


class LiveEvent(Answer, frozen=True):
    """The data of one message of the live feed. Fields that are empty are left out."""

    kind: EventKind
    at: str
    n: int
    job: str | None = None
    by: str | None = None
    state: StateName | None = None
    reason: ReasonName | None = None
    task: str | None = None
    queue: str | None = None
    run: str | None = None
    owner: str | None = None
    priority: int | None = None
    attempt: int | None = None
    fence: int | None = None
    run_at: str | None = None
    progress: float | None = None
    note: str | None = None
    error: str | None = None


# -- health and sign-in ------------------------------------------------------------------------------------------------

Verdict = Literal["pass", "warn", "fail"]


class Health(Answer, frozen=True):
    status: Verdict


class HealthCheck(Answer, frozen=True):
    """One thing that was looked at, and the reason for its status."""

    name: str
    status: Verdict
    reason: str


class Readiness(Answer, frozen=True):
    status: Verdict
    checks: list[HealthCheck]


class SignInQuery(Request, frozen=True):
    code: Code


class SignInForm(Request, frozen=True):
    code: Code


class SessionBody(Answer, frozen=True):
    """The caller. `queues` of null means all queues; `csrf` is there for signed-in browsers only."""

    by: str
    kind: Literal["anonymous", "token", "session"]
    roles: list[Literal["read", "submit", "work", "admin"]]
    queues: list[str] | None
    csrf: str | None


# -- jobs --------------------------------------------------------------------------------------------------------------


class ErrorBody(Answer, frozen=True):
    """What went wrong in the latest attempt."""

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
    meta: dict[str, str]
    resources: list[NeedBody]
    worker: str | None
    cached_from: str | None
    created_at: str
    updated_at: str
    run_at: str | None
    started_at: str | None
    finished_at: str | None
    expires_at: str | None
    waited_for: float
    ran_for: float | None


# Shown in the OpenAPI document and in the reference page; a test decodes each by its struct.
EXAMPLES: Final[dict[type[Struct], Any]] = {
    ProblemBody: {
        "type": "urn:daybreak:problem:not-found",
        "title": "There is no such thing",
        "status": 404,
        "detail": f"no job {EXAMPLE_ID}: never submitted here, or removed since",
    },
    Health: {"status": "pass"},
    Readiness: {
        "status": "warn",
        "checks": [
            {"name": "store", "status": "pass", "reason": "the sqlite store answers"},
            {"name": "workers", "status": "warn", "reason": "no live worker, and 3 jobs wait"},
        ],
    },
    SessionBody: {"by": "ann", "kind": "token", "roles": ["read", "submit"], "queues": ["mail"], "csrf": None},
    JobBody: {
        "id": EXAMPLE_ID,
        "task": "send_mail",
        "version": 1,
        "queue": "mail",
        "priority": 5,
        "state": "completed",
        "reason": None,
        "attempt": 1,
        "max_attempts": 3,
        "retries": 0,
        "args": {"to": "ann@example.com"},
        "result": {"sent": True},
        "error": None,
        "progress": None,
        "fence": 1,
        "run": None,
        "owner": None,
        "key": None,
        "tags": [],
        "meta": {},
        "resources": [],
        "worker": "mailer-1",
        "cached_from": None,
        "created_at": "2026-01-31T18:00:00Z",
        "updated_at": "2026-01-31T18:00:02Z",
        "run_at": None,
        "started_at": "2026-01-31T18:00:01Z",
        "finished_at": "2026-01-31T18:00:02Z",
        "expires_at": None,
        "waited_for": 1.0,
        "ran_for": 1.0,
    },
}

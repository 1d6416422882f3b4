"""Request and response bodies, and the parameters of queries. They are the schema of the OpenAPI document.

A request with a field that is not listed here is refused. Durations in requests are text such as "90s" or "1h30m"; in
answers they are seconds. Instants are ISO 8601 with a time zone. An answer may get more fields in a later version."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from daybreak.core.events import KINDS
from daybreak.policy.admit import NAME_LIMIT, TAGS_LIMIT

StateName = Literal[
    "scheduled", "blocked", "queued", "running", "suspended", "completed", "failed", "cancelled"
]  # fmt: skip
ReasonName = Literal["error", "exhausted", "timeout", "expired", "shed", "lost", "upstream"]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT)]
Code = Annotated[str, Meta(min_length=1, max_length=100)]
Duration = Annotated[str, Meta(min_length=2, max_length=40, description="such as 90s or 1h30m", examples=["90s"])]
Instant = Annotated[datetime, Meta(tz=True)]
Past = Annotated[str, Meta(min_length=2, max_length=40, description="an age or an instant", examples=["1d"])]
PriorityValue = Annotated[int, Meta(ge=0, le=10)] | Annotated[str, Meta(min_length=3, max_length=10)]
PriorityWord = Annotated[str, Meta(pattern="^([0-9]|10|[A-Za-z]{3,10})$", description="0 to 10, or a name")]
Preset = Literal["default", "aggressive", "conservative", "simulator", "upload"]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Cursor = Annotated[str, Meta(min_length=1, max_length=200)]
Note = Annotated[str, Meta(max_length=1000)]
SmallNumber = Annotated[int, Meta(ge=0, le=2**31)]
SlotNumber = Annotated[int, Meta(ge=0, le=1_000_000_000)]

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


# -- alerts ------------------------------------------------------------------------------------------------------------

AlertLevel = Literal["ok", "warning", "critical"]


class AlertBody(Answer, frozen=True):
    """One rule for one queue or lock. `value` is in the rule's unit: jobs, seconds, or a share from 0 to 1."""

    rule: str
    subject: str
    level: AlertLevel
    value: float
    unit: Literal["jobs", "seconds", "share"] | None
    since: str | None
    text: str
    advice: str


class NoticeBody(Answer, frozen=True):
    """One change of level. `undelivered` are the sinks that have not got it yet, `errors` says which failed and why."""

    id: str
    rule: str
    subject: str
    level: AlertLevel
    before: AlertLevel
    value: float
    threshold: float | None
    at: str
    text: str
    advice: str
    undelivered: list[str]
    errors: dict[str, str]


class AlertList(Answer, frozen=True):
    """`looked_at` is null until a worker or a server has looked."""

    looked_at: str | None
    alerts: list[AlertBody]
    notices: list[NoticeBody]


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


# -- submitting --------------------------------------------------------------------------------------------------------


class RetryBody(Request, frozen=True):
    """When to try again. `attempts` counts all tries, the first included."""

    strategy: Literal["fixed", "linear", "exponential", "jittered", "adaptive"] = "jittered"
    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    delay: Duration = "1s"
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    cap: Duration = "30s"
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    unknown: Literal["retry", "fail"] = "retry"


class SubmitBody(Request, frozen=True):
    """A job to submit. What is left out is as the task declares it, or as usual. `timeout` may be `adaptive:10m`."""

    task: Name
    args: dict[str, Any] = {}
    queue: Name | None = None
    priority: PriorityValue | None = None
    version: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    delay: Duration | None = None
    run_at: Instant | None = None
    expires_in: Duration | None = None
    key: Name | None = None
    unique: Name | None = None
    unique_while: Literal["unfinished", "waiting"] | None = None
    on_conflict: Literal["return", "replace", "raise", "refuse"] | None = None
    retry: Annotated[int, Meta(ge=1, le=1_000_000)] | Preset | RetryBody | None = None
    timeout: Duration | None = None
    keep: Duration | None = None
    tags: Annotated[list[Name], Meta(max_length=TAGS_LIMIT)] = []
    meta: dict[str, str] = {}
    run: Name | None = None
    owner: Name | None = None


class Submitted(Answer, frozen=True):
    """An accepted job. `position` is how many jobs of its queue are claimed before it, or null if it does not wait.
    `created` is false if a job with the same key or unique name stands for it already."""

    id: str
    state: StateName
    position: int | None
    created: bool


class BatchBody(Request, frozen=True):
    """Jobs to submit together. Each is accepted or refused by itself."""

    jobs: Annotated[list[SubmitBody], Meta(min_length=1, max_length=1000)]


class BatchItem(Answer, frozen=True):
    """What became of one job of a batch: an accepted job, or the problem."""

    id: str | None
    state: StateName | None
    created: bool
    problem: ProblemBody | None


class BatchAnswer(Answer, frozen=True):
    """In the order of the request. `accepted` counts those that stand in the store."""

    accepted: int
    jobs: list[BatchItem]


# -- listing and changing ----------------------------------------------------------------------------------------------


class JobQuery(Request, frozen=True):
    """Which jobs are listed. `since` and `until` are an age, such as 1d, or an instant."""

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
    limit: Limit = 50
    cursor: Cursor | None = None


class JobPage(Answer, frozen=True):
    """One page. A `cursor` of null means that there are no more jobs."""

    jobs: list[JobBody]
    cursor: str | None


class JobResult(Answer, frozen=True):
    """How a job ended. Of an unfinished job (202) only its state and progress are known."""

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
    note: str | None = None
    error: str | None = None


class EventList(Answer, frozen=True):
    events: list[EventBody]


class NoteBody(Request, frozen=True):
    """`note` says why; it is kept in the job's history."""

    note: Note = ""


class JobReleaseBody(NoteBody, frozen=True):
    """With `charge` the interrupted attempt counts; without it does not."""

    charge: bool = False


class PriorityBody(Request, frozen=True):
    priority: PriorityValue


class Changed(Answer, frozen=True):
    """`done`: it is changed. `requested`: the job runs, and was asked."""

    id: str
    verdict: Literal["done", "requested", "refused", "missing"]
    state: StateName | None


class CauseBody(Answer, frozen=True):
    """One thing that keeps a job from running. `holders` are the ids of the jobs, or of the workers, in the way.
    `command` is the command that removes the cause."""

    kind: str
    text: str
    holders: list[str]
    command: str | None


class WhyBody(Answer, frozen=True):
    """Why a job does not run, the most important cause first. The expected start is a range; it is null if it cannot be
    predicted."""

    job: str
    state: StateName
    causes: list[CauseBody]
    starts_after: str | None
    starts_before: str | None


class CauseCountBody(Answer, frozen=True):
    """So many waiting jobs have one cause; `subject` is the queue, the task or the resource."""

    kind: str
    subject: str
    jobs: int
    command: str | None


class WhySummary(Answer, frozen=True):
    """The causes of all waiting jobs, the most frequent first."""

    causes: list[CauseCountBody]


class FilterBody(Request, frozen=True):
    """Which jobs are meant. At least one field must be there."""

    state: Annotated[list[StateName], Meta(max_length=8)] = []
    reason: ReasonName | None = None
    queue: Name | None = None
    task: Name | None = None
    run: Name | None = None
    owner: Name | None = None
    key: Name | None = None
    priority: PriorityValue | None = None
    tag: Name | None = None
    since: Past | None = None
    until: Past | None = None


class BulkBody(Request, frozen=True):
    """A change of many jobs, by their `ids` or by a `filter`. A filter without a state means the jobs of which the
    action usually makes sense: `retry` means failed jobs. `dry_run` counts and changes nothing."""

    action: Literal["cancel", "retry", "suspend", "resume", "remove", "priority", "start-now"]
    ids: Annotated[list[Name], Meta(min_length=1, max_length=10_000)] | None = None
    filter: FilterBody | None = None
    priority: PriorityValue | None = None
    note: Note = ""
    dry_run: bool = False


class BulkAnswer(Answer, frozen=True):
    """`matching` jobs are meant, `changed` were changed or asked. `jobs` is there if ids were given."""

    action: str
    dry_run: bool
    matching: int
    changed: int
    by_state: dict[str, int]
    jobs: list[Changed] | None


# -- queues ------------------------------------------------------------------------------------------------------------


class QueueBody(Answer, frozen=True):
    """A queue: the fields of `daybreak queues show --json`, and what waits. `depth` counts all waiting jobs,
    `oldest_wait` is in seconds. `patience` is in seconds."""

    name: str
    paused: bool
    max_running: int | None
    capacity: int | None
    when_full: Literal["refuse", "shed"]
    discipline: Literal["fifo", "aging"]
    patience: float
    weight: int
    by_state: dict[str, int]
    by_priority: dict[str, int]
    by_task: dict[str, int]
    depth: int
    running: int
    oldest_at: str | None
    oldest_wait: float | None


class QueueList(Answer, frozen=True):
    queues: list[QueueBody]


class QueueChanges(Request, frozen=True):
    """Settings to change; null takes a limit away."""

    paused: bool | UnsetType = UNSET
    max_running: SmallNumber | UnsetType | None = UNSET
    capacity: SmallNumber | UnsetType | None = UNSET
    when_full: Literal["refuse", "shed"] | UnsetType = UNSET
    discipline: Literal["fifo", "aging"] | UnsetType = UNSET
    patience: Duration | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1, le=2**31)] | UnsetType = UNSET


# -- resources and locks -----------------------------------------------------------------------------------------------


class BreakerBody(Answer, frozen=True):
    """When a breaker opens and closes; `open_for` and `forget_after` are in seconds."""

    failures: int
    successes: int
    open_for: float
    probes: int
    forget_after: float | None


class ResourceBody(Answer, frozen=True):
    """A resource: the fields of `daybreak resources --json`."""

    name: str
    slots: int | None
    used: int
    waiting: int
    retries_waiting: int
    rate: str
    burst: int
    max_waiting: int | None
    breaker: Literal["none", "closed", "open"]
    failures: int
    opened: int
    shut_until: str | None
    set_by: str
    differs: bool
    breaker_settings: BreakerBody | None


class ResourceDetail(ResourceBody, frozen=True):
    """`holders` are the jobs that hold it now."""

    holders: list[str]


class ResourceQuery(Request, frozen=True):
    """Locks are resources too, and may be many: they are listed only on demand."""

    locks: bool = False


class ResourceList(Answer, frozen=True):
    resources: list[ResourceBody]


class BreakerChanges(Request, frozen=True):
    failures: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 5
    successes: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 2
    open_for: Duration = "60s"
    probes: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1
    forget_after: Duration | None = None


class ResourceChanges(Request, frozen=True):
    """Settings to change; null takes a limit, or the breaker, away. `rate` is such as 10/s or 100/min."""

    slots: SlotNumber | UnsetType | None = UNSET
    rate: Annotated[str, Meta(min_length=1, max_length=40, examples=["10/s"])] | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1, le=1_000_000_000)] | UnsetType = UNSET
    max_waiting: SlotNumber | UnsetType | None = UNSET
    breaker: BreakerChanges | bool | UnsetType | None = UNSET


class LockBody(Answer, frozen=True):
    """Who holds a lock (`running`), or waits for it (`blocked`, with a position)."""

    job: str
    locks: list[str]
    who: str
    state: StateName
    priority: int
    since: str
    fence: int
    until: str | None
    position: int | None


class LockQuery(Request, frozen=True):
    name: Name | None = None


class LockList(Answer, frozen=True):
    """Those who hold a lock come first, then those who wait, the first in line first."""

    locks: list[LockBody]


class ReleaseBody(Request, frozen=True):
    """Without an `owner`, the lock is taken from whoever holds it. With one, only if it is theirs."""

    owner: Name | None = None


class Released(Answer, frozen=True):
    released: list[str]


# -- workers and figures -----------------------------------------------------------------------------------------------


class TaskVersion(Answer, frozen=True):
    task: str
    version: int


class WorkerBody(Answer, frozen=True):
    """A worker: the fields of `daybreak workers --json`."""

    id: str
    name: str
    state: Literal["live", "stopping", "stopped", "gone"]
    host: str
    pid: int
    app: str | None
    queues: list[str]
    tasks: list[TaskVersion]
    processes: int | None
    async_jobs: int | None
    lease_for: float
    running: int
    done: int
    failed: int
    started_at: str | None
    seen_at: str | None


class WorkerQuery(Request, frozen=True):
    live: bool = False


class WorkerList(Answer, frozen=True):
    workers: list[WorkerBody]


class QueueParameter(Request, frozen=True):
    """Figures of one queue, or of all."""

    queue: Name | None = None


class StatsParameters(Request, frozen=True):
    """Figures of one queue, or of all. With `since`, the answer has trends from then on, at most 30 days; `by` and
    `resolution` count only then."""

    queue: Name | None = None
    since: Past | None = None
    by: Literal["queue", "priority", "task"] = "queue"
    resolution: Literal["minute", "hour", "day"] | None = None


class TrendFigures(Answer, frozen=True):
    """What happened in a period. Times are seconds. Counts and averages are exact, quantiles within 5 %. `waiting` and
    `running` are jobs at its end. `target_met` is the share of jobs that waited no longer than the target of their
    priority."""

    submitted: int
    completed: int
    failed: int
    expired: int
    shed: int
    cancelled: int
    retries: int
    retries_failed: int
    timeouts: int
    lost: int
    waiting: int
    running: int
    average_wait: float
    wait_p50: float
    wait_p95: float
    wait_p99: float
    average_run: float
    run_p50: float
    run_p95: float
    run_p99: float
    target_met: float | None


class TrendPoint(TrendFigures, frozen=True):
    """The figures of the minute, hour or day that begins at this instant."""

    at: str


class TrendGroup(Answer, frozen=True):
    """One queue, priority or task; `*` stands for all that are not listed. `target` is the wait target of a
    priority."""

    name: str
    target: float | None
    figures: TrendFigures
    points: list[TrendPoint]


class TrendsBody(Answer, frozen=True):
    """The figures from `since` to `until`, in all and by queue, priority or task."""

    since: str
    until: str
    resolution: str
    by: str
    queue: str | None
    figures: TrendFigures
    points: list[TrendPoint]
    groups: list[TrendGroup]


class QueueFigures(Answer, frozen=True):
    """What has happened in a queue since the store was made, and what waits now. Times are seconds."""

    queue: str | None
    submitted: int
    processed: int
    completed: int
    timeouts: int
    errors: int
    shed: int
    cancelled: int
    shortened: int
    waiting: int
    running: int
    average_wait: float
    average_run: float
    by_priority: dict[str, int]
    batches: int
    last_at: str | None
    last_ran: float


class TimeoutFigures(Answer, frozen=True):
    total: int
    by_kind: dict[str, int]
    adjustments: int
    escalations: int
    average: float
    active: int


class RetryFigures(Answer, frozen=True):
    total: int
    successful: int
    failed: int
    breaker_trips: int
    spared: int
    adapted: int
    by_strategy: dict[str, int]
    average_run: float
    most_attempts: int


class AdaptiveFigures(Answer, frozen=True):
    """How long something took over the last day, and the limit that follows from it. Times are seconds."""

    subject: str
    seen: int
    late: int
    median: float
    p99: float
    base: float
    limit: float
    adjustments: int


class StatsBody(Answer, frozen=True):
    """The fields of `daybreak stats --json`. `trends` is there if `since` was given."""

    queue: QueueFigures
    timeouts: TimeoutFigures
    retries: RetryFigures
    adaptive: list[AdaptiveFigures]
    queues: list[QueueFigures]
    trends: TrendsBody | UnsetType = UNSET


class RetriesBody(Answer, frozen=True):
    queue: str | None
    retries: RetryFigures


class TimeoutsBody(Answer, frozen=True):
    """`adaptive` is what the adaptive limits have learnt."""

    queue: str | None
    timeouts: TimeoutFigures
    adaptive: list[AdaptiveFigures]


# -- audit -------------------------------------------------------------------------------------------------------------


class AuditQuery(Request, frozen=True):
    by: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class AuditBody(Answer, frozen=True):
    """One change. `outcome` is the status that was answered; `started` if the server was killed meanwhile."""

    id: str
    at: str
    by: str
    caller: Literal["token", "session", "anonymous"]
    action: str
    method: str
    path: str
    request: str
    outcome: str


class AuditPage(Answer, frozen=True):
    """The latest change first. A `cursor` of null means that there are no more."""

    entries: list[AuditBody]
    cursor: str | None


# Shown in the OpenAPI document and in the reference page; a test decodes each by its struct.
EXAMPLES: Final[dict[type[Struct], Any]] = {
    ProblemBody: {
        "type": "urn:daybreak:problem:not-found",
        "title": "There is no such thing",
        "status": 404,
        "detail": f"no job {EXAMPLE_ID}: it was never submitted to this store, or it was removed",
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
    SubmitBody: {"task": "send_mail", "args": {"to": "ann@example.com"}, "queue": "mail", "priority": "high"},
    Submitted: {"id": EXAMPLE_ID, "state": "queued", "position": 0, "created": True},
    BatchBody: {"jobs": [{"task": "send_mail", "args": {"to": "ann@example.com"}}]},
    NoteBody: {"note": "the mail server is down"},
    JobReleaseBody: {"note": "its machine is frozen", "charge": False},
    PriorityBody: {"priority": "critical"},
    Changed: {"id": EXAMPLE_ID, "verdict": "done", "state": "queued"},
    BulkBody: {"action": "retry", "filter": {"queue": "mail", "reason": "exhausted"}, "dry_run": True},
    BulkAnswer: {
        "action": "retry", "dry_run": True, "matching": 3, "changed": 0, "by_state": {"failed": 3}, "jobs": None,
    },
    QueueChanges: {"max_running": 4, "discipline": "aging", "patience": "10m"},
    ResourceChanges: {"slots": 2, "rate": "10/s", "burst": 5},
    ReleaseBody: {"owner": "pr-812"},
}  # fmt: skip

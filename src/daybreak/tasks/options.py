"""The options that people write, in one list each: of a job, of a task, of a worker.

A new option is one line here, and is then typed, suggested for misspelt ones and compared with the documents. What
another job queue calls an option is answered with our name for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

from daybreak.core.errors import BadInput, Unsupported
from daybreak.core.model import Adaptive, Retry
from daybreak.core.units import Priority

Span = timedelta | str  # "90s", "10m"


class JobOptions(TypedDict, total=False):
    """What `task.using(...)` takes: it holds for the jobs that are submitted through it."""

    priority: Priority | int | str
    queue: str
    delay: Span | None
    run_at: datetime | None
    expires_in: Span | None
    key: str | Callable[..., str] | None
    unique: str | None
    unique_while: Literal["unfinished", "waiting"]
    on_conflict: Literal["return", "replace", "raise", "refuse"]
    tags: Sequence[str]
    meta: Mapping[str, str] | None
    owner: str | None
    run: str | None
    resource: object
    retry: Retry | int | str | None
    timeout: Span | Adaptive | None
    hang: Span | None
    keep: Span | None
    id: str
    tx: Any


class TaskOptions(TypedDict, total=False):
    """What `@app.task(...)` takes: it holds for every job of the task, unless `using` says otherwise."""

    name: str | None
    version: int
    aliases: Iterable[str]
    queue: str
    priority: Priority | int | str
    retry: Retry | int | str | None
    timeout: Span | Adaptive | None
    expires_in: Span | None
    keep: Span | None
    hang: Span | None
    deaths: int
    resource: object
    fail_fast: bool


class WorkerOptions(TypedDict, total=False):
    """What `app.worker(...)` and `app.work(...)` take; None is as if it was not said."""

    queues: Iterable[str] | str | None
    processes: int | None
    async_jobs: int | None
    lease_for: Span | None
    grace: Span | None
    cancel_grace: Span | None
    recycle_after: int | None
    memory_limit: int | None
    isolation: Literal["process", "thread"] | None
    allow_commands: bool | None
    name: str | None
    until_idle: bool | None


JOB_OPTIONS: Final = frozenset(JobOptions.__annotations__)
TASK_OPTIONS: Final = frozenset(TaskOptions.__annotations__)
WORKER_OPTIONS: Final = frozenset(WorkerOptions.__annotations__)
LATER: Final = frozenset({"after", "depends_on", "cache"})  # planned, and not there yet

# What others call it, and how it is written here.
_RETRY: Final = "retry=3, which counts the first attempt, or retry=Retry(attempts=3, delay='1s', cap='30s')"
_ELSEWHERE: Final = {
    **dict.fromkeys(("eta", "execute_at", "scheduled_at", "at"), "run_at=datetime(..., tzinfo=UTC), or delay='10m'"),
    **dict.fromkeys(("countdown", "defer", "delay_seconds"), "delay='10s'"),
    **dict.fromkeys(("retries", "max_retries", "max_attempts", "attempts", "max_tries", "retry_policy"), _RETRY),
    **dict.fromkeys(("backoff", "retry_backoff", "min_backoff", "max_backoff", "retry_delay"), _RETRY),
    **dict.fromkeys(("autoretry_for", "retry_for"), "retry=Retry(transient=('ConnectionError',))"),
    **dict.fromkeys(("dont_autoretry_for", "throws"), "retry=Retry(permanent=('ValueError',))"),
    **dict.fromkeys(("expires", "max_age", "ttl", "expires_at"), "expires_in='1h'"),
    **dict.fromkeys(
        ("timeout_seconds", "timeout_s", "time_limit", "soft_time_limit", "job_timeout", "max_runtime"), "timeout='10m'"
    ),
    **dict.fromkeys(("result_ttl", "result_expires", "failure_ttl", "retention", "keep_result"), "keep='7d'"),
    **dict.fromkeys(("task_id", "job_id", "message_id"), "id='...', or key='...' to submit something only once"),
    **dict.fromkeys(("idempotency_key", "dedup_key"), "key='...'"),
    **dict.fromkeys(("queue_name", "routing_key"), "queue='...'"),
    **dict.fromkeys(("queueing_lock", "singleton", "lock_name"), "unique='...'"),
    **dict.fromkeys(("rate_limit", "rate", "throttle"), "resource=Resource('...', rate='10/s')"),
    **dict.fromkeys(("concurrency_limit", "max_concurrency"), "resource=Resource('...', slots=1)"),
    **dict.fromkeys(("metadata", "headers", "labels"), "meta={'...': '...'}"),
    "at_front": "priority='high'",
    "connection": "tx=connection",
    "heartbeat": "hang='1m'",
    "actor_name": "name='...'",
}
_OF_TASKS: Final = {
    **_ELSEWHERE,
    **dict.fromkeys(("bind", "pass_context"), "a first parameter that is annotated Context"),
    **dict.fromkeys(("on_success", "on_failure", "on_retry"), "@app.on('completed') or another kind of event"),
}
_OF_WORKERS: Final = {
    **dict.fromkeys(("concurrency", "workers", "threads", "num_workers"), "processes=4, or async_jobs=100"),
    **dict.fromkeys(("pool", "worker_class"), "isolation='process' or isolation='thread'"),
    "burst": "until_idle=True",
    "queue": "queues=['...']",
    "max_jobs": "recycle_after=1000",
    "max_tasks_per_child": "recycle_after=1000",
    "max_memory_per_child": "memory_limit=512 * 1024 * 1024",
    "shutdown_timeout": "grace='10s'",
    "hostname": "name='...'",
}


def check_job_options(said: Iterable[str]) -> None:
    _check("using()", said, JOB_OPTIONS, _ELSEWHERE, (TASK_OPTIONS, "is an option of the task: @app.task({}=...)"))


def check_task_options(said: Iterable[str]) -> None:
    _check("task()", said, TASK_OPTIONS, _OF_TASKS, (JOB_OPTIONS, "is an option of single jobs: task.using({}=...)"))


def check_worker_options(said: Iterable[str]) -> None:
    _check("a worker", said, WORKER_OPTIONS, _OF_WORKERS, (frozenset(), ""))


def _check(
    where: str,
    said: Iterable[str],
    known: frozenset[str],
    elsewhere: Mapping[str, str],
    other: tuple[frozenset[str], str],
) -> None:
    for name in said:
        if name in known:
            continue
        if name in LATER and where != "a worker":
            raise Unsupported(f"{where} has no option {name!r} yet: it is not available in this version")
        if name in elsewhere:
            raise BadInput(f"{where} has no option {name!r}; did you mean {elsewhere[name]}?")
        if name in other[0]:
            raise BadInput(f"{where} has no option {name!r}; it {other[1].format(name)}")
        raise BadInput(f"{where} has no option {name!r}; {_hint(name, known)}")


def _hint(name: str, known: frozenset[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is misspelt

    close = get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known))}"

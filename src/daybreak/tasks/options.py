"""The options that people write, in one list each: of a job, of a task, of a worker.

A new option is one line in its list. It is then typed, suggested for a misspelt one, and compared with the documents.
The name that another job queue uses for an option is answered with Daybreak's name for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from daybreak.core.errors import BadInput, Unsupported
from daybreak.core.model import Adaptive, Retry
from daybreak.core.units import Priority
from daybreak.policy.parse_options import SUBMIT_OPTIONS, Span, SubmitOptions
from daybreak.tasks.cache import Cache, CacheOption


class JobOptions(SubmitOptions, total=False):
    """The options of `task.using(...)`, for the jobs that are submitted through it: those of any job, the resources it
    needs, the connection in whose transaction it is submitted, and whether a known result may be used for it."""

    resource: object
    tx: Any
    cache: CacheOption | Cache | None


class TaskOptions(TypedDict, total=False):
    """The options of `@app.task(...)`, for every job of the task that `using` does not change."""

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
    cache: bool | Cache | None


class BatchTaskOptions(TaskOptions, total=False):
    """The options of `@app.batch_task(...)`: those of a task, and how its jobs are put together."""

    size: int
    by: str | Sequence[str] | Callable[[Any], object] | None
    linger: Span | None


class WorkerOptions(TypedDict, total=False):
    """The options of `app.worker(...)` and `app.work(...)`. None is the same as leaving an option out."""

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


JOB_OPTIONS: Final = SUBMIT_OPTIONS | frozenset(JobOptions.__annotations__)
TASK_OPTIONS: Final = frozenset(TaskOptions.__annotations__)
BATCH_OPTIONS: Final = TASK_OPTIONS | frozenset(BatchTaskOptions.__annotations__)
WORKER_OPTIONS: Final = frozenset(WorkerOptions.__annotations__)
PLANNED: Final = frozenset({"after", "depends_on"})  # not available yet

# The names that other job queues use, and how the option is written here.
_RETRY: Final = "retry=3, which counts the first attempt, or retry=Retry(attempts=3, delay='1s', cap='30s')"
_FOREIGN_JOB_NAMES: Final = {
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
    **dict.fromkeys(("persist_result", "cache_policy", "memoize", "cache_result"), "cache=True"),
    **dict.fromkeys(("cache_ttl", "cache_expiration", "cache_key_fn", "cache_version"), "cache=Cache(ttl='7d')"),
    **dict.fromkeys(("refresh_cache", "cache_serialize", "use_cache"), "cache=True, False or 'refresh'"),
    "at_front": "priority='high'",
    "connection": "tx=connection",
    "heartbeat": "hang='1m'",
    "actor_name": "name='...'",
}
_FOREIGN_TASK_NAMES: Final = {
    **_FOREIGN_JOB_NAMES,
    **dict.fromkeys(("bind", "pass_context"), "a first parameter that is annotated Context"),
    **dict.fromkeys(("on_success", "on_failure", "on_retry"), "@app.on('completed') or another kind of event"),
}
_FOREIGN_BATCH_NAMES: Final = {
    **_FOREIGN_TASK_NAMES,
    **dict.fromkeys(("batch_size", "max_batch_size", "max_size", "flush_every"), "size=16"),
    **dict.fromkeys(("wait", "max_wait", "timeout_ms", "flush_interval", "batch_window"), "linger='2s'"),
    **dict.fromkeys(("key", "group_by", "batch_key"), "by='model', or by=lambda item: ..."),
}
_FOREIGN_WORKER_NAMES: Final = {
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


def check_job_options(names: Iterable[str]) -> None:
    """Refuse names that are no options of `task.using(...)`."""
    hint = "is an option of the task: @app.task({}=...)"
    _check("using()", names, JOB_OPTIONS, _FOREIGN_JOB_NAMES, (TASK_OPTIONS, hint))


def check_submit_options(names: Iterable[str]) -> None:
    """Refuse names that are no options of `Client.submit(...)`."""
    hint = "is an option of a task: task.using({}=...) or @app.task({}=...)"
    _check("submit()", names, SUBMIT_OPTIONS, _FOREIGN_JOB_NAMES, (JOB_OPTIONS | TASK_OPTIONS, hint))


def check_task_options(names: Iterable[str]) -> None:
    """Refuse names that are no options of `@app.task(...)`."""
    hint = "is an option of single jobs: task.using({}=...)"
    for_batches = {name: f"@app.batch_task({name}=...)" for name in BATCH_OPTIONS - TASK_OPTIONS}
    _check("task()", names, TASK_OPTIONS, {**_FOREIGN_TASK_NAMES, **for_batches}, (JOB_OPTIONS, hint))


def check_batch_options(names: Iterable[str]) -> None:
    """Refuse names that are no options of `@app.batch_task(...)`."""
    hint = "is an option of single jobs: task.using({}=...)"
    _check("batch_task()", names, BATCH_OPTIONS, _FOREIGN_BATCH_NAMES, (JOB_OPTIONS, hint))


def check_worker_options(names: Iterable[str]) -> None:
    """Refuse names that are no options of a worker."""
    _check("a worker", names, WORKER_OPTIONS, _FOREIGN_WORKER_NAMES, (frozenset(), ""))


def _check(
    where: str,
    names: Iterable[str],
    known: frozenset[str],
    foreign: Mapping[str, str],
    misplaced: tuple[frozenset[str], str],
) -> None:
    """`foreign` are names that other job queues use; `misplaced` are the options of another call, and what to write."""
    for name in names:
        if name in known:
            continue
        if name in PLANNED and where != "a worker":
            raise Unsupported(f"{where} has no option {name!r} yet: it is not available in this version")
        if name in foreign:
            raise BadInput(f"{where} has no option {name!r}; did you mean {foreign[name]}?")
        if name in misplaced[0]:
            raise BadInput(f"{where} has no option {name!r}; it {misplaced[1].replace('{}', name)}")
        raise BadInput(f"{where} has no option {name!r}; {_hint(name, known)}")


def _hint(name: str, known: frozenset[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and only needed for a misspelt option

    close = get_close_matches(name, sorted(known), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"the options are {', '.join(sorted(known))}"

"""Decides what keeps a job from running. Pure: everything it looks at is in the situation."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from daybreak.api.resources import ResourceInfo
from daybreak.api.why.situation import Situation
from daybreak.api.worker_info import WorkerInfo
from daybreak.client.saga_record import saga_of_label
from daybreak.client.schedule_record import overlap_name, schedule_of
from daybreak.core.flights import is_flight_cause
from daybreak.core.metadata import decode_meta
from daybreak.core.model import JobSpec, State
from daybreak.core.resource_gauge import need_of, spared_resource
from daybreak.core.text import ago, counted, lasted, local, priority_name
from daybreak.policy.durations import classes_of, quantile
from daybreak.policy.resources import LOCK_PREFIX
from daybreak.tasks.command_tasks import COMMAND_TASKS

CauseKind = Literal[
    "ended", "running", "elsewhere", "cancelling", "lost worker", "suspended", "scheduled", "retry delay", "paused",
    "no worker", "unknown task", "unserved queue", "draining", "max_running", "lock", "resource", "rate", "breaker",
    "retry budget", "behind others", "workers busy", "about to start", "dispatched", "same computation",
    "lingering",
]  # fmt: skip
MIN_DURATIONS: Final = 3  # with fewer ended jobs no start is predicted


class Cause(Struct, frozen=True, kw_only=True):
    """One thing that keeps a job from running. `holders` are the ids of the jobs, or of the workers, in the way.
    `command` are the words of the `daybreak` command that removes the cause; empty if none does."""

    kind: CauseKind
    text: str
    holders: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def command_line(self) -> str:
        """The command as one would type it."""
        return shlex.join(("daybreak", *self.command)) if self.command else ""


class SagaPart(Struct, frozen=True, kw_only=True):
    """What a job does in a saga: it runs a step of it, or undoes one."""

    id: str
    name: str
    step: str
    is_undo: bool

    @property
    def words(self) -> str:
        """Such as `it undoes step create_pod of saga`, to be followed by the id."""
        return f"it {'undoes' if self.is_undo else 'runs'} step {self.step} of saga"


class Why(Struct, frozen=True, kw_only=True):
    """Why a job is not running, the most important cause first; or, if it runs or has ended, that it does. `saga` is
    what it does in a saga, if it belongs to one. `starts_after` and `starts_before` are the expected start as a range;
    None if it cannot be predicted."""

    job: str
    state: State
    causes: tuple[Cause, ...]
    saga: SagaPart | None = None
    starts_after: datetime | None = None
    starts_before: datetime | None = None

    def __str__(self) -> str:
        return "; ".join(cause.text for cause in self.causes)


def explain(situation: Situation) -> Why:
    """Why the job of this situation is not running."""
    causes = tuple(_causes(situation))
    after, before = _expected_start(situation, causes)
    job = situation.job
    return Why(
        job=job.id, state=job.state, causes=causes, saga=_saga_of(job.spec), starts_after=after, starts_before=before
    )


def _saga_of(spec: JobSpec) -> SagaPart | None:
    run_id, meta = saga_of_label(spec.run), decode_meta(spec.meta)
    if run_id is None or meta.get("saga") != run_id:
        return None
    name, step = str(meta.get("saga_name", "")), str(meta.get("step", ""))
    return SagaPart(id=run_id, name=name, step=step, is_undo=meta.get("undo") is True)


def _causes(here: Situation) -> Iterator[Cause]:
    match here.job.state:
        case State.RUNNING if here.job.detached:
            yield _elsewhere(here)
        case State.RUNNING if here.dispatcher is not None and not here.job.cancelling:
            yield from _dispatched(here, here.dispatcher)
        case State.RUNNING:
            yield _running(here)
        case State.SUSPENDED:
            yield _suspended(here)
        case State.SCHEDULED:
            yield _scheduled(here)
            yield from _no_worker(here)
        case State.BLOCKED:
            yield from _blocked(here)
        case State.QUEUED:
            yield from _queued(here)
        case _:
            yield _ended(here)


# -- states ------------------------------------------------------------------------------------------------------------


def _ended(here: Situation) -> Cause:
    job = here.job
    reason = f", reason {job.reason.value}" if job.reason else ""
    error = f": {job.failure}" if job.failure is not None and job.state is State.FAILED else ""
    command = () if job.state is State.COMPLETED else ("jobs", "retry", job.id)
    return Cause(kind="ended", text=f"it has ended: {job.state.value}{reason}{error}", command=command)


def _running(here: Situation) -> Cause:
    job = here.job
    worker = next((one for one in here.workers if one.id == here.runner), None)
    name = _name(worker, here.runner)
    if job.cancelling:
        text = f"it runs on {name}, and was asked to stop"
        return Cause(kind="cancelling", text=text, command=("jobs", "release", job.id))
    is_overdue = job.leased_until is not None and job.leased_until < here.now
    is_gone = job.spec.holder is None and (worker is None or not worker.is_live(here.now))
    if is_overdue and is_gone:
        text = f"its worker {name} is gone; a live worker takes the job over, or you return it to its queue now"
        holders = (here.runner,) if here.runner else ()
        return Cause(kind="lost worker", text=text, holders=holders, command=("jobs", "release", job.id))
    since = f" for {lasted(here.now - job.started_at)}" if job.started_at is not None else ""
    text = f"it runs on {name}{since}, attempt {job.attempt}"
    if here.delivery is not None:
        age = here.delivery.heartbeat_age(job, here.now)
        text = f"{text}; {here.delivery.worker} sent its last heartbeat {lasted(age)} ago"
    return Cause(kind="running", text=text)


def _elsewhere(here: Situation) -> Cause:
    """No worker has the job: whoever runs its work ends it."""
    job = here.job
    deadline = f", deadline {ago(job.leased_until, here.now)}" if job.leased_until is not None else ""
    since = f" for {lasted(here.now - job.started_at)}" if job.started_at is not None else ""
    held = "; it will be suspended when this attempt ends" if job.suspending else ""
    return Cause(
        kind="elsewhere",
        text=f"it has run{since}, and goes on elsewhere{deadline}, attempt {job.attempt}{held}",
        command=("finish", job.id, "--fence", str(job.fence), "--result", "JSON"),
    )


def _dispatched(here: Situation, dispatcher: WorkerInfo) -> Iterator[Cause]:
    """The job is in a task queue, where no remote worker has begun it."""
    yield Cause(kind="dispatched", text=f"{dispatcher.name} sent it to {dispatcher.via}; no worker has begun it yet")
    yield from _no_worker(here)


def _suspended(here: Situation) -> Cause:
    job = here.job
    event = next((event for event in reversed(here.history) if event.kind == "suspended"), None)
    by = f" by {event.by}" if event is not None and event.by else ""
    note = f": {job.note}" if job.note else ""
    return Cause(kind="suspended", text=f"it was suspended{by}{note}", command=("jobs", "resume", job.id))


def _scheduled(here: Situation) -> Cause:
    job = here.job
    when = _until(job.run_at, here.now)
    command = ("jobs", "start-now", job.id)
    if job.failure is not None:
        text = f"attempt {job.attempt} failed ({job.failure.kind}), and the next one starts {when}"
        return Cause(kind="retry delay", text=text, command=command)
    return Cause(kind="scheduled", text=f"it is scheduled to start {when}", command=command)


def _queued(here: Situation) -> Iterator[Cause]:
    found = [*_queue_settings(here), *_no_worker(here)]
    if not found:
        found += _max_running(here)
    yield from found
    ahead = 0 if here.position is None else here.position.ahead
    if ahead:
        yield _behind(here, ahead)
    if found:
        return
    lingering = _lingering(here)
    if lingering is not None:
        yield lingering
        return
    if here.able and not _free_slots(here):
        yield _busy(here)
    elif not ahead:
        yield Cause(kind="about to start", text="nothing is in the way: a worker claims it in a moment")


def _lingering(here: Situation) -> Cause | None:
    """The call that it belongs to is not full, and waits for more jobs."""
    if here.batching is None or not here.company:
        return None
    size, linger = here.batching
    ripe_at = here.company[0].created_at + linger
    if len(here.company) >= size or ripe_at <= here.now:
        return None
    text = (
        f"its call has {len(here.company)} of {counted(size, 'job')}; it waits for more, until {local(ripe_at)} "
        "at the latest"
    )
    return Cause(kind="lingering", text=text)


# -- what is in the way ------------------------------------------------------------------------------------------------


def _queue_settings(here: Situation) -> Iterator[Cause]:
    queue = here.job.spec.queue
    if here.queue.paused:
        yield Cause(kind="paused", text=f"its queue {queue!r} is paused", command=("queues", "resume", queue))


def _max_running(here: Situation) -> Iterator[Cause]:
    queue, limit = here.job.spec.queue, here.queue.max_running
    if limit is not None and here.running >= limit:
        yield Cause(
            kind="max_running",
            text=f"its queue {queue!r} runs at most {counted(limit, 'job')} at once, and {here.running:,} run now",
            command=("queues", "set", queue, f"max_running={max(limit, here.running) + 1}"),
        )


def worker_words(
    task: str, queue: str, target: str = "TARGET", *, is_unserved: bool = False, via: str = ""
) -> tuple[str, ...]:
    """The command that starts a worker for jobs of this task in this queue. One for command lines needs no app; one
    that gets its jobs `via` message queues serves the queues that its dispatcher does."""
    if via and task not in COMMAND_TASKS:
        return ("worker", target, "--url", via)
    served = ("--queues", queue) if is_unserved or queue != "default" else ()
    if task in COMMAND_TASKS:
        return ("worker", "--allow-commands", *served)
    return ("worker", target, *served)


def _no_worker(here: Situation) -> Iterator[Cause]:
    """At most one cause: no worker can claim the job."""
    job, live = here.job, here.live
    if job.spec.holder is not None or here.able:
        return
    task, version = here.task
    via = here.dispatchers[0].via if here.dispatchers else ""
    start = worker_words(task, job.spec.queue, _target(here.workers), via=via)
    if not live:
        yield Cause(kind="no worker", text="no worker is running", command=start)
        return
    if not here.knowing:
        versions = sorted({known for worker in live for name, known in worker.tasks if name == task})
        text = f"no live worker has the task {task!r}, version {version}"
        if versions:
            text = f"{text}; they have version {', '.join(map(str, versions))}"
        command = worker_words(task, job.spec.queue, _target_of(here), via=via)
        if via:
            text = f"{text}; those that get jobs from {via} would run it"
        yield Cause(kind="unknown task", text=text, holders=_ids(live), command=command)
        return
    if not here.serving:
        yield Cause(
            kind="unserved queue",
            text=f"no live worker that has the task {task!r} serves the queue {job.spec.queue!r}",
            holders=_ids(here.knowing),
            command=worker_words(task, job.spec.queue, _target(here.workers), is_unserved=True),
        )
        return
    yield Cause(
        kind="draining",
        text=f"{counted(len(here.serving), 'worker')} could run it, but stops and claims no more jobs",
        holders=_ids(here.serving),
        command=start,
    )


def _behind(here: Situation, ahead: int) -> Cause:
    job = here.job
    at_least = "" if here.position is None or here.position.exact else "at least "
    before = [f"{n:,} {priority_name(level)}" for level, n in sorted(here.ahead.items()) if level < job.priority]
    same = ahead - sum(n for level, n in here.ahead.items() if level < job.priority)
    if same > 0 and before:
        before.append(f"{same:,} {priority_name(job.priority)}")
    by_priority = f" ({', '.join(before)})" if before else ""
    return Cause(
        kind="behind others",
        text=f"{at_least}{counted(ahead, 'job')} of its queue {'is' if ahead == 1 else 'are'} before it{by_priority}",
        holders=tuple(found.id for found in here.first),
        command=("jobs", "priority", "emergency", job.id),
    )


def _busy(here: Situation) -> Cause:
    workers = here.able
    slots = sum(here.slots_of(worker) for worker in workers)
    return Cause(
        kind="workers busy",
        text=f"all {counted(slots, 'slot')} of {counted(len(workers), 'worker')} that could run it are in use",
        holders=_ids(workers),
        command=worker_words(here.job.spec.task, here.job.spec.queue, _target(workers), via=workers[0].via),
    )


def _blocked(here: Situation) -> Iterator[Cause]:
    job, cause = here.job, here.job.blocked_on or ""
    if is_flight_cause(cause):
        yield _same_computation(here)
        return
    yield from _queue_settings(here)
    spared = spared_resource(cause)
    if spared is not None:
        yield Cause(
            kind="retry budget",
            text=f"the resource {spared!r} is failing, so its retries are limited to 10 % of first attempts",
            command=("resources", "reset", spared),
        )
    elif cause.startswith(LOCK_PREFIX):
        yield _lock(here, cause.removeprefix(LOCK_PREFIX))
    else:
        yield _resource(here, cause)
    yield from _no_worker(here)
    if here.position is not None and here.position.ahead:
        text = f"{counted(here.position.ahead, 'job')} of its queue waits for the same resource before it"
        if here.position.ahead != 1:
            text = text.replace("waits", "wait")
        yield Cause(kind="behind others", text=text, command=("jobs", "priority", "emergency", job.id))


def _same_computation(here: Situation) -> Cause:
    """The result comes from another job, so neither workers nor slots are what this one waits for."""
    if not here.holders:
        return Cause(kind="same computation", text="it waits for another job that computes the same, for its result")
    leader = here.holders[0]
    runs = "runs" if leader.state is State.RUNNING else f"is {leader.state.value}"
    return Cause(
        kind="same computation",
        text=f"it waits for the same computation by job {leader.id}, which {runs}, for its result",
        holders=(leader.id,),
        command=("why", leader.id),
    )


def _lock(here: Situation, name: str) -> Cause:
    holders = ", ".join(sorted({holder.spec.owner or holder.spec.holder or "" for holder in here.holders}))
    text = f"the lock {name!r} is held" + (f" by {holders}" if holders else "")
    return Cause(
        kind="lock", text=text, holders=_job_ids(here), command=("locks", "release", name, "--force"),
    )  # fmt: skip


def _resource(here: Situation, name: str) -> Cause:
    info = here.resources.get(name)
    if info is None:
        return Cause(kind="resource", text=f"it waits for the resource {name!r}", holders=_job_ids(here))
    needs = need_of(here.job.spec, name)
    if info.breaker == "open":
        return Cause(
            kind="breaker",
            text=f"the breaker of the resource {name!r} is open; a job may try it {_until(info.shut_until, here.now)}",
            holders=_job_ids(here),
            command=("resources", "reset", name),
        )
    if info.slots is None or info.used + needs <= info.slots:
        return _rate(here, name, info)
    schedule = schedule_of(here.job.spec)
    if schedule is not None and name == overlap_name(schedule):
        return Cause(
            kind="resource",
            text=f"the jobs of the schedule {schedule!r} run one after the other, and an earlier one has not ended",
            holders=_job_ids(here),
            command=("schedules", "show", schedule),
        )
    text = f"the resource {name!r} has {counted(info.slots, 'slot')}, of which {info.used:,} {_are(info.used)} in use"
    if needs > 1:
        text = f"{text}; it needs {needs:,}"
    command = ("resources", "set", name, f"slots={info.used + needs}")
    return Cause(kind="resource", text=text, holders=_job_ids(here), command=command)


def _rate(here: Situation, name: str, info: ResourceInfo) -> Cause:
    if info.rate:
        text = f"the resource {name!r} starts at most {info.rate}"
        return Cause(kind="rate", text=text, command=("resources", "set", name, "rate=none"))
    text = f"it waits for the resource {name!r}, which is free now: a worker claims it in a moment"
    return Cause(kind="resource", text=text, holders=_job_ids(here))


# -- when it should start ----------------------------------------------------------------------------------------------


def _expected_start(here: Situation, causes: tuple[Cause, ...]) -> tuple[datetime | None, datetime | None]:
    """The expected start as a range: known for scheduled jobs, predicted from durations behind others."""
    job = here.job
    kinds = {cause.kind for cause in causes}
    if job.state is State.SCHEDULED and len(causes) == 1:
        return job.run_at, job.run_at
    if kinds == {"about to start"}:
        return here.now, here.now + timedelta(seconds=1)
    if kinds == {"lingering"} and here.batching is not None:
        return here.now, here.company[0].created_at + here.batching[1]
    slots = sum(here.slots_of(worker) for worker in here.able)
    if here.queue.max_running is not None:
        slots = min(slots, here.queue.max_running)
    classes = {} if here.durations is None else classes_of(here.durations)
    if not kinds <= {"behind others", "workers busy", "max_running"} or not kinds or not slots:
        return None, None
    if sum(classes.values()) < MIN_DURATIONS:
        return None, None
    rounds = (0 if here.position is None else here.position.ahead) // slots
    soonest, latest = quantile(classes, 0.25), quantile(classes, 0.9)
    return here.now + timedelta(seconds=rounds * soonest), here.now + timedelta(seconds=(rounds + 1) * latest)


def _free_slots(here: Situation) -> bool:
    """Whether a worker that could run the job has a free slot. Its record may be some seconds old."""
    return any(worker.running < here.slots_of(worker) for worker in here.able)


# -- words -------------------------------------------------------------------------------------------------------------


def _until(when: datetime | None, now: datetime) -> str:
    return "now" if when is None or when <= now else ago(when, now)


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _name(worker: WorkerInfo | None, id_: str | None) -> str:
    return (worker.name if worker is not None else "") or id_ or "an unknown worker"


def _ids(workers: list[WorkerInfo]) -> tuple[str, ...]:
    return tuple(worker.id for worker in workers)


def _job_ids(here: Situation) -> tuple[str, ...]:
    return tuple(job.id for job in here.holders)


def _target(workers: list[WorkerInfo]) -> str:
    """The app that the latest worker ran, or a placeholder."""
    return next((worker.app for worker in workers if worker.app), "TARGET")


def _target_of(here: Situation) -> str:
    """The app of a task that no live worker knows: that of the latest worker that knew it, or knew another version. If
    none did, the task is probably new in the app of the workers, if they have one in common."""
    task = here.task
    knew = [worker for worker in here.workers if task in worker.tasks]
    knew += [worker for worker in here.workers if any(name == task[0] for name, _ in worker.tasks)]
    if not knew and len({worker.app for worker in here.live}) == 1:
        knew = here.live
    return _target(knew)

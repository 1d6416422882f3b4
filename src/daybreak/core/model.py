"""The nouns: frozen data types that every layer shares.

Life of a job:   JobSpec -> (insert) -> Job -> (claim) -> Lease -> (run) -> Outcome -> (policy.settle) -> Settlement
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from daybreak.core.units import Priority, counted, duration


class _Bytes:
    """Shown instead of bytes: says only how many there are."""

    def __init__(self, data: bytes) -> None:
        self._count = len(data)

    def __repr__(self) -> str:
        return f"<{counted(self._count, 'byte')}>"


class RedactedStruct(Struct, frozen=True):
    """A struct that holds encoded arguments, results or checkpoints. Its repr shows only their size, because they may
    contain secrets."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        fields = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, _Bytes(value) if isinstance(value, bytes) else value) for name, value in fields]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class State(StrEnum):
    """The state of a job. The last three are final."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
UNFINISHED: Final = frozenset(State) - FINAL
WAITING: Final = UNFINISHED - {State.RUNNING}


class Reason(StrEnum):
    """Why a failed job failed."""

    ERROR = "error"
    EXHAUSTED = "exhausted"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    SHED = "shed"
    LOST = "lost"
    UPSTREAM = "upstream"


class Retry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """When a failed attempt is retried. `attempts` counts all attempts, the first included. `delay` and `cap` may be
    given as text, such as "90s".

    `unknown` says what happens after an error that is neither transient nor permanent. `transient` and `permanent` are
    names of exception classes."""

    strategy: Literal["fixed", "linear", "exponential", "jittered", "adaptive"] = "jittered"
    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=30)
    jitter: float = 0.1
    unknown: Literal["retry", "fail"] = "retry"
    transient: tuple[str, ...] = ()
    permanent: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the constructor accepts more types than the fields hold

        def __init__(
            self,
            *,
            strategy: Literal["fixed", "linear", "exponential", "jittered", "adaptive"] = "jittered",
            attempts: int = 3,
            delay: timedelta | str = ...,
            factor: float = 2.0,
            cap: timedelta | str = ...,
            jitter: float = 0.1,
            unknown: Literal["retry", "fail"] = "retry",
            transient: tuple[str, ...] = (),
            permanent: tuple[str, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("delay", "cap"):
            value = getattr(self, name)
            if not isinstance(value, timedelta):
                force_setattr(self, name, duration(value, f"retry: {name}"))


class Adaptive(Struct, frozen=True):
    """An execution limit that adapts to how long the jobs of a task take: `timeout=Adaptive("4s")`.

    The limit starts at `base` and stays between half of it and three times it. Once `escalate_after` attempts of a job
    have timed out, each further attempt gets `escalate` times as long, raised at most five times. `base` may be given
    as text, such as "90s"."""

    base: timedelta
    escalate: float = 1.5
    escalate_after: int = 1

    if TYPE_CHECKING:

        def __init__(self, base: timedelta | str, escalate: float = 1.5, escalate_after: int = 1) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.base, timedelta):
            force_setattr(self, "base", duration(self.base, "Adaptive"))


class Need(Struct, frozen=True, omit_defaults=True):
    """The slots of one resource that a job holds while it runs; its start also uses one token of the resource's rate.

    The needs of a job are sorted by resource name, and each name occurs once."""

    resource: str
    slots: int = 1


class Batching(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How the jobs of a batch task are put together: one call gets at most `size` of them. A call that is not full
    waits until its first job is `linger` old."""

    size: int
    linger: timedelta | None = None


class Caching(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How results of a task are kept for later jobs with the same `flight`: for `ttl` (None: until they make room), and
    at most `size` bytes of them per task (None: no limit but that of the store). What was used longest ago makes
    room."""

    ttl: timedelta | None = None
    size: int | None = None


class Options(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a job is run. Jobs of one task share one instance, so stores encode and decode it once.

    `timeout` is the execution limit of every attempt, exactly as given. With `adaptive` it is the base that the limit
    starts from, and only then do `escalate` and `escalate_after` apply: see `Adaptive`. `hang` is how long an attempt
    may show no activity. `deaths` is how many times the job may crash its process while it runs alone.

    `expires_in` is how long the job may wait for its first start. `keep_completed` and `keep_failed` are how long a
    job is kept after it ended; None is forever. Cancelled jobs are kept as long as completed ones. A job with
    `fail_fast` fails instead of waiting for a resource whose breaker is open. `cache` is set if, and only if, the job
    has a `flight`."""

    retry: Retry = Retry()
    timeout: timedelta | None = None
    escalate: float = 1.5
    escalate_after: int = 1
    adaptive: bool = False
    hang: timedelta | None = None
    deaths: int = 3
    expires_in: timedelta | None = None
    keep_completed: timedelta | None = timedelta(days=7)
    keep_failed: timedelta | None = timedelta(days=90)
    resources: tuple[Need, ...] = ()
    fail_fast: bool = False
    cache: Caching | None = None


DEFAULT_OPTIONS: Final = Options()


class JobSpec(RedactedStruct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A job as it was submitted. The client makes its id, so that repeating an insert is harmless.

    A job with a `holder` is run by the process that submitted it, as a lock is: no claim returns it. When the resources
    it needs are free, the store leases it to the holder, at first for `hold_for`.

    A `unique` name belongs to one unfinished job at a time; with `unique_while="waiting"`, a running job gives the name
    up to the next job that is submitted under it. `digest` is the digest of the content that the idempotency `key`
    stands for. `code` is the digest of the task's code at the time of submission; it is set for jobs with a key, and is
    not part of that content. `trace` is the W3C `traceparent` of the span in which the job was submitted.

    Jobs with the same `batch`, which is set for every job of a batch task, may run in one call. Jobs with the same
    `flight`, a digest, would compute the same result, and run once; `flight_parts` are the digests of what it was made
    of, by name, so that people can be told which part differs."""

    id: str
    task: str
    args: bytes = b"{}"
    queue: str = "default"
    version: int = 1
    priority: int = Priority.NORMAL.value
    options: Options = DEFAULT_OPTIONS
    by: str = ""
    delay: timedelta | None = None
    run_at: datetime | None = None
    key: str | None = None
    digest: str = ""
    unique: str | None = None
    on_conflict: Literal["return", "replace", "raise", "refuse"] = "return"
    unique_while: Literal["unfinished", "waiting"] = "unfinished"
    code: str = ""
    run: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, str] = {}
    batch: str | None = None
    flight: str | None = None
    flight_parts: dict[str, str] = {}
    after: tuple[str, ...] = ()
    deadline: datetime | None = None
    holder: str | None = None
    hold_for: timedelta = timedelta(seconds=7)
    trace: str | None = None


def has_claim_rule(spec: JobSpec) -> bool:
    """Whether a claim must look at more than the rank and the needs of a job, such as its batch. No store's fast path
    leases such a job by rules of its own: the kernel chooses it."""
    return spec.batch is not None


def has_links(spec: JobSpec) -> bool:
    """Whether a transaction must look at more than the job itself: what its claim depends on, a flight, the jobs it
    comes after, or its deadline. No store's fast path inserts such a job."""
    return has_claim_rule(spec) or spec.flight is not None or bool(spec.after) or spec.deadline is not None


class Failure(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What went wrong in an attempt, as plain data that outlives the process in which it happened.

    `kinds` are the names of the exception's class and its bases, most specific first. `verdict` is set if the task
    itself classified the error."""

    message: str
    kinds: tuple[str, ...] = ()
    traceback: str = ""
    verdict: Literal["transient", "permanent"] | None = None
    status: int | None = None
    retry_after: timedelta | None = None
    attempt: int = 0

    @property
    def kind(self) -> str:
        """The name of the exception's class, without its module."""
        return self.kinds[0].rsplit(".", 1)[-1] if self.kinds else "Error"

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class Job(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """Everything the store knows about a job at one instant.

    `revision` is the number of its latest event, and `updated_at` its time: progress and heartbeats do not change them.
    `worker` holds its lease or, once the job is final, held the last one.
    `attempt` counts attempts, of which `lost` ended with their process and `timeouts` ran into their limit.
    `group` is the batch call that a running job is in (`Lease.group`): the jobs of one call hold the slots of one job.
    `cached_from` is the job whose result a completed job has, if it did not run itself. A running job that is
    `detached` goes on elsewhere: no worker has it, and `leased_until` is its deadline."""

    spec: JobSpec
    seq: int
    state: State
    reason: Reason | None = None
    blocked_on: str | None = None
    priority: int
    attempt: int = 0
    fence: int = 0
    revision: int = 1
    lost: int = 0
    timeouts: int = 0
    created_at: datetime
    updated_at: datetime
    run_at: datetime | None = None
    expires_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    group: int | None = None
    leased_until: datetime | None = None
    progress: float | None = None
    message: str = ""
    note: str = ""
    cancelling: bool = False
    suspending: bool = False
    detached: bool = False
    checkpoint: bytes | None = None
    result: bytes | None = None
    cached_from: str | None = None
    failure: Failure | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def is_final(self) -> bool:
        return self.state in FINAL


class Lease(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """The right to run a job until an instant. Every write under the lease carries its fence.

    `alone` means that the holder runs nothing else in the same process, so that a crash is this job's fault
    (`Beat.alone`). `begun` is False if the lease was prefetched (`Claim.begins`), until a heartbeat says that the work
    begins (`Beat.begun`): if the holder dies before that, the job is not charged an attempt.

    Leases of one claim with the same `group` are to run in one call. It is the seq of the first of them, the head. All
    of them together hold the slots of one job, until the last of their leases has ended.

    A `detached` lease belongs to no worker: the attempt goes on elsewhere until somebody finishes it with its fence."""

    seq: int
    spec: JobSpec
    fence: int
    attempt: int
    priority: int
    worker: str
    until: datetime
    lease_for: timedelta
    started_at: datetime
    created_at: datetime
    lost: int = 0
    timeouts: int = 0
    checkpoint: bytes | None = None
    call: str | None = None
    reaped: bool = False
    alone: bool = False
    begun: bool = True
    detached: bool = False
    group: int | None = None

    @property
    def job(self) -> str:
        return self.spec.id


class Done(RedactedStruct, frozen=True, gc=False):
    """The attempt succeeded. `result` is its encoded result, and `ran` is how many seconds it took. `note` is what
    people should know about it."""

    result: bytes | None = None
    ran: float = 0.0
    note: str = ""


class Failed(Struct, frozen=True, gc=False):
    """The attempt raised an error, after `ran` seconds."""

    failure: Failure
    ran: float = 0.0


class TimedOut(Struct, frozen=True):
    """The attempt was ended because it ran too long. `story` gives the reason if that was not its execution limit, and
    `stack` is its stack at that moment."""

    after: timedelta
    story: str = ""
    stack: str = ""


class Lost(Struct, frozen=True):
    """The process that ran the attempt died, or sent no heartbeat for a whole lease. Only a job that ran `alone` is to
    blame for that."""

    detail: str = ""
    alone: bool = False


class Cancelled(Struct, frozen=True):
    """The attempt stopped because the job was cancelled."""

    by: str = ""


class Suspended(RedactedStruct, frozen=True):
    """The attempt stopped because the job was suspended, by a person or by the task itself."""

    note: str = ""
    checkpoint: bytes | None = None


class HandedBack(RedactedStruct, frozen=True):
    """The worker returned the job for a reason that is not the job's fault (shutdown, preemption): no attempt is
    charged, unless a person released the job and `charged` it. With a `delay`, no worker may claim it before that time
    has passed. `unused` means that the job certainly never began."""

    checkpoint: bytes | None = None
    delay: timedelta | None = None
    unused: bool = False
    charged: bool = False


Outcome = Done | Failed | TimedOut | Lost | Cancelled | Suspended | HandedBack


class Detached(Struct, frozen=True):
    """The attempt goes on elsewhere, for at most so long: it is over for its worker, but it is not settled."""

    deadline: timedelta


Ending = Outcome | Detached  # how an attempt ends for its worker


class Put(Struct, frozen=True, kw_only=True):
    """A request to write a record. `expect` is the revision that the record must have (0: it must not exist); with None
    it is written unconditionally.

    A value of None deletes the record. If `tells` is set, the write also adds an event of this kind to the feed; the
    event belongs to no job.

    `inserts` are jobs that are submitted if, and only if, the record is written: right after it, in this order and in
    the same transaction. A full queue does not refuse them. Ids, idempotency keys and unique names apply as to any
    insert, but there are no verdicts: if the record was written, each of the jobs is new, or an earlier job stands in
    its place. Who must know which reads the jobs by their ids, or asks `Store.known_keys`."""

    kind: str
    name: str
    value: bytes | None
    expect: int | None = None
    tells: str = ""
    by: str = ""
    inserts: tuple[JobSpec, ...] = ()


class Record(Struct, frozen=True, kw_only=True):
    """A small named value in the store: queue settings, workers, cursors. Every write increases its revision."""

    kind: str
    name: str
    value: bytes
    revision: int


class Settlement(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """How one lease ends, as plain data: policy decides it, and stores write it without deciding anything.

    `attempt`, `lost` and `timeouts` are the values after the settlement. `delay` counts from the store's own clock.
    `inserts` and `puts` are written in the same transaction, or not at all: nothing of them is written if the lease was
    lost, or if the job is being cancelled. A cancel request is binding, so such a job becomes cancelled whatever the
    settlement says, and what belongs to another outcome does not happen. A job can also end without a settlement.
    So what must happen at every end belongs to a follower of the feed (`events.ends_job`), and not here.

    `counts_as` is the label under which the totals count the attempt (empty: not counted), with the microseconds that
    the attempt `ran` and, for a first attempt, the microseconds that the job had `waited`.

    `unused` means that the job never began under this lease: the rate tokens it took are returned where that is exact
    (see `Gauge.give_start`). `unkept` means that no other job gets the result of this one, which completed."""

    seq: int
    job: str
    fence: int
    state: State
    reason: Reason | None = None
    attempt: int
    lost: int = 0
    timeouts: int = 0
    delay: timedelta | None = None
    result: bytes | None = None
    failure: Failure | None = None
    checkpoint: bytes | None = None
    note: str = ""
    keep_for: timedelta | None = None
    by: str = ""
    inserts: tuple[JobSpec, ...] = ()
    puts: tuple[Put, ...] = ()
    counts_as: str = ""
    ran: int = 0
    waited: int | None = None
    unused: bool = False
    unkept: bool = False


class QueueSettings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The settings of a queue, which a person may change while it is in use; stored as a record of kind `queue`.

    A queue is full when `capacity` of its jobs are unfinished. With `when_full="shed"` a more urgent job is then
    accepted, and the last in rank of the queued and blocked jobs fails with the reason `shed`. `ranked` is False while
    the waiting jobs are being moved to the ranks of a new discipline."""

    paused: bool = False
    max_running: int | None = None
    capacity: int | None = None
    when_full: Literal["refuse", "shed"] = "refuse"
    discipline: Literal["fifo", "aging"] = "fifo"
    patience: timedelta = timedelta(minutes=2)
    weight: int = 1
    ranked: bool = True


DEFAULT_QUEUE: Final = QueueSettings()


class Breaker(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The circuit breaker of a resource. It opens after so many consecutive transient `failures`, for `open_for`; then
    `probes` jobs at a time may try the resource, and so many `successes` close it. Another failure opens it again.
    Failures that are longer apart than `forget_after` do not add up; None means that only a success resets the
    count."""

    failures: int = 5
    successes: int = 2
    open_for: timedelta = timedelta(seconds=60)
    probes: int = 1
    forget_after: timedelta | None = None


class ResourceSettings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The limits of a resource, which a person may change while it is in use; stored as a record of kind `resource`.
    A resource without a record, and a limit of None, limits nothing.

    The rate allows one start per `every`, and up to `burst` starts at once after a pause. `set_by` is the person who
    set the limits; it is empty if they are those that the code declares."""

    slots: int | None = None
    every: timedelta | None = None
    burst: int = 1
    max_waiting: int | None = None
    breaker: Breaker | None = None
    set_by: str = ""


class Gate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a resource's breaker; stored as a record of kind `gate`. Stores use two of its fields: no job starts
    for `shut_for` after the record was written, and after that at most `probes` slots are in use. `failed_at` is the
    last failure while closed, if the breaker forgets failures. `probing` means that a probe has started since it last
    opened."""

    state: Literal["closed", "open"] = "closed"
    shut_for: timedelta = timedelta()
    probes: int | None = None
    failures: int = 0
    successes: int = 0
    opened: int = 0
    opened_at: datetime | None = None
    failed_at: datetime | None = None
    probing: bool = False


class Health(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a resource did lately, over all workers: exponentially decayed counts of successes (`good`) and transient
    failures (`bad`), as of the time `at`. Stored as a record of kind `health`. Stores use one of its fields: for
    `spare_for` after the record was written, retries are limited to 10 % of first attempts."""

    good: float = 0.0
    bad: float = 0.0
    at: datetime | None = None
    spare_for: timedelta = timedelta()


UNLIMITED: Final = ResourceSettings()
NO_GATE: Final = Gate()
NO_HEALTH: Final = Health()

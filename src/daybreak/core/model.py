"""The nouns: frozen data that every layer shares.

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
    """Stands for bytes where they are printed."""

    def __init__(self, data: bytes) -> None:
        self._count = len(data)

    def __repr__(self) -> str:
        return f"<{counted(self._count, 'byte')}>"


class RedactedStruct(Struct, frozen=True):
    """What holds arguments, results or checkpoints: printed, it says how many bytes they are, for some of them may be
    secret."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        found = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, _Bytes(value) if isinstance(value, bytes) else value) for name, value in found]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class State(StrEnum):
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
    """When to try again: `attempts` counts all tries, the first included. `delay` and `cap` may be written as text,
    such as "90s"."""

    strategy: Literal["fixed", "linear", "exponential", "jittered", "adaptive"] = "jittered"
    attempts: int = 3
    delay: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=30)
    jitter: float = 0.1
    unknown: Literal["retry", "fail"] = "retry"
    transient: tuple[str, ...] = ()
    permanent: tuple[str, ...] = ()

    if TYPE_CHECKING:  # what people may write is more than what is kept of it

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
            if not isinstance(said := getattr(self, name), timedelta):
                force_setattr(self, name, duration(said, f"retry: {name}"))


class Adaptive(Struct, frozen=True):
    """An execution limit that follows how long the jobs of a task take: `timeout=Adaptive("4s")`.

    The limit starts at `base` and stays between half of it and three times it. From the `escalate_after`th attempt of a
    job that timed out on, each further attempt gets `escalate` times as long, at most five times over. `base` may be
    written as text, such as "90s"."""

    base: timedelta
    escalate: float = 1.5
    escalate_after: int = 1

    if TYPE_CHECKING:

        def __init__(self, base: timedelta | str, escalate: float = 1.5, escalate_after: int = 1) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.base, timedelta):
            force_setattr(self, "base", duration(self.base, "Adaptive"))


class Need(Struct, frozen=True, omit_defaults=True):
    """Slots of one resource that a job holds while it runs, and one start of its pace. A job's needs stand in the order
    of their names, each name once."""

    resource: str
    slots: int = 1


class Options(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a job is run. Jobs of one task share one value, so stores encode and decode it once.

    An execution `timeout` is the limit of every attempt, exactly as written. Only where it is `adaptive` is it a base
    that the limit starts from, and only then do `escalate` and `escalate_after` count: see `Adaptive`. `hang` is how
    long it may show no sign of life.

    `keep_*` say how long a job stays after it ended; None is for ever. Cancelled jobs stay as completed ones do. One
    that should `fail_fast` does not wait for a resource whose breaker is open."""

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


DEFAULT_OPTIONS: Final = Options()


class JobSpec(RedactedStruct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One piece of work as accepted. Its id is made by whoever submits, so that asking twice is harmless.

    One with a `holder` is run by whoever submitted it, as a lock is: no claim finds it. Whatever frees what it needs
    leases it to the holder, at first for `hold_for`.

    A `unique` name belongs to one unfinished job at a time; with `unique_while="waiting"`, a running job gives the name
    up to the next job that is submitted under it. `code` is the digest of the task's code at the submit: it is said of
    jobs with a key, and is no part of the content that the key stands for."""

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
    after: tuple[str, ...] = ()
    deadline: datetime | None = None
    holder: str | None = None
    hold_for: timedelta = timedelta(seconds=7)


class Failure(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What went wrong in an attempt, in a form that outlives the process in which it happened.

    `kinds` are the names of the exception's class and its bases, most special first.
    """

    message: str
    kinds: tuple[str, ...] = ()
    traceback: str = ""
    verdict: Literal["transient", "permanent"] | None = None
    status: int | None = None
    retry_after: timedelta | None = None
    attempt: int = 0

    @property
    def kind(self) -> str:
        return self.kinds[0].rsplit(".", 1)[-1] if self.kinds else "Error"

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class Job(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """All that is known of a job at one instant. `revision` is the number of its latest event. `worker` is who holds
    it; once it is final, who held it last."""

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
    run_at: datetime | None = None
    expires_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    leased_until: datetime | None = None
    progress: float | None = None
    message: str = ""
    note: str = ""
    cancelling: bool = False
    suspending: bool = False
    checkpoint: bytes | None = None
    result: bytes | None = None
    failure: Failure | None = None

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def is_final(self) -> bool:
        return self.state in FINAL


class Lease(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """The right to run a job until an instant. Every write under it carries the fence.

    `alone` says that its holder runs nothing else beside it that could be to blame if it dies (`Beat.alone`).
    `begun` is False from a claim that took it ahead of time (`Claim.begins`) until its holder says that the work begins
    (`Beat.begun`): a holder that dies before that costs the job nothing."""

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

    @property
    def job(self) -> str:
        return self.spec.id


class Done(RedactedStruct, frozen=True, gc=False):
    """The work ended and this is its encoded result; `ran` are the seconds it took."""

    result: bytes | None = None
    ran: float = 0.0


class Failed(Struct, frozen=True, gc=False):
    failure: Failure
    ran: float = 0.0


class TimedOut(Struct, frozen=True):
    """The attempt ran longer than it may and was ended. `story` says why, where it is another reason than its limit,
    and `stack` where it stood."""

    after: timedelta
    story: str = ""
    stack: str = ""


class Lost(Struct, frozen=True):
    """Whoever ran the attempt died, or was not heard of for a whole lease. Only one that ran `alone` is to blame."""

    detail: str = ""
    alone: bool = False


class Cancelled(Struct, frozen=True):
    by: str = ""


class Suspended(RedactedStruct, frozen=True):
    note: str = ""
    checkpoint: bytes | None = None


class HandedBack(RedactedStruct, frozen=True):
    """The worker could not go on through no fault of the job (shutdown, preemption): nothing is charged. With a `delay`
    nobody may claim it before that time has passed. `unused` says that the job certainly never began."""

    checkpoint: bytes | None = None
    delay: timedelta | None = None
    unused: bool = False


Outcome = Done | Failed | TimedOut | Lost | Cancelled | Suspended | HandedBack


class Put(Struct, frozen=True, kw_only=True):
    """Write a record. `expect` is the revision it must have (0: must not exist); None writes whatever is there.

    A value of None deletes. With a `tells` the feed tells of it, by an event of this kind that belongs to no job."""

    kind: str
    name: str
    value: bytes | None
    expect: int | None = None
    tells: str = ""
    by: str = ""


class Record(Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    value: bytes
    revision: int


class Settlement(RedactedStruct, frozen=True, gc=False, kw_only=True):
    """The fate of one lease, as numbers and data only; stores write it and decide nothing.

    `attempt`, `lost` and `timeouts` are the values after it. `delay` counts from the store's own now.
    `inserts` and `puts` happen with it, or not at all.

    `counts_as` is how it is added to the totals (empty: not at all), with the microseconds that the attempt `ran`, and,
    of a first attempt, those for which the job had `waited`.

    `unused` says that the job never began under this lease: the starts that it took of rate-limited resources are given
    back where that is exact (see `Gauge.give_start`)."""

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


class QueueSettings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person may change of a queue while it runs; kept as a record of kind `queue`.

    A queue is full when `capacity` of its jobs are unfinished. One that should `shed` then lets a more urgent job push
    out the one that would be claimed last."""

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
    """When a failing resource is left alone: after so many transient failures in a row, for `open_for`; then `probes`
    jobs at a time may try, and so many successes close it again. One more failure opens it anew."""

    failures: int = 5
    successes: int = 2
    open_for: timedelta = timedelta(seconds=60)
    probes: int = 1


class ResourceSettings(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person may change of a resource while it is in use; kept as a record of kind `resource`. Without one, and
    with every number left out, nothing is limited.

    The pace: one start each `every`, and up to `burst` of them at once after a rest. `set_by` is the person who set it;
    empty where it is as the code declares it."""

    slots: int | None = None
    every: timedelta | None = None
    burst: int = 1
    max_waiting: int | None = None
    breaker: Breaker | None = None
    set_by: str = ""


class Gate(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the breaker of a resource has seen and decided; kept as a record of kind `gate`. Stores read two numbers of
    it: nothing starts for `shut_for` after it was put, and from then on at most `probes` slots are given."""

    state: Literal["closed", "open"] = "closed"
    shut_for: timedelta = timedelta()
    probes: int | None = None
    failures: int = 0
    successes: int = 0
    opened: int = 0
    opened_at: datetime | None = None


class Health(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a resource did lately, by all who used it: successes and transient failures, the older the less, as they
    weighed `at` that time. Kept as a record of kind `health`. Stores read one number of it: for `spare_for` after it
    was put, retries are at most a tenth of first tries."""

    good: float = 0.0
    bad: float = 0.0
    at: datetime | None = None
    spare_for: timedelta = timedelta()


UNLIMITED: Final = ResourceSettings()
NO_GATE: Final = Gate()
NO_HEALTH: Final = Health()

"""The seam: the operations of a store. They work on batches of jobs: a list in, a list out, in the same order.

Every operation is one atomic transaction. `now=None` means the store's own two clocks: wall time decides only `run_at`;
steady time, which never jumps and never goes back, decides leases, delays and expiry. A given `now` sets both clocks.

A store does not decide what becomes of a job: it does arithmetic on numbers that `policy` computed. The memory store is
the specification of that arithmetic, and property tests compare the other stores with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, Protocol, Self, runtime_checkable

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import Batching, Job, JobSpec, Lease, Put, Record, RedactedStruct, Settlement, State
from daybreak.core.units import micros, span

POSITION_EXACT_TO: Final = 10_000
SCANNED_PER_PAGE: Final = 10_000
SCANNED_PER_CHUNK: Final = 1000  # per chunk of a bulk change; writers wait while it scans
PROMOTED_PER_CLAIM: Final = 100  # scheduled jobs that one claim queues because they are due


class Traits(Struct, frozen=True, kw_only=True):
    """What a store can promise. A job that needs a feature which is not in `features` is refused.

    `durable` says in words when an accepted job survives a crash; `shared` says whether several processes can use the
    store at the same time, and `persistent` whether it outlives the process."""

    name: str
    durable: str
    shared: bool
    persistent: bool = True
    features: frozenset[str] = frozenset()


# -- insert ------------------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The answer to one submitted job.

    NEW         the job was accepted
    DUPLICATE   the same job was accepted before, by id, idempotency key or unique name
    CONFLICT    the key or the unique name belongs to another job
    SPENT       a job with the same content ran under this key and was purged
    FULL        the queue, or a resource that the job needs, accepts no more jobs
    FOLLOWS     the job was accepted, and waits for the result of another one that computes the same
    CACHED      the job was accepted, and is completed: the result was known"""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    SPENT = "spent"
    FULL = "full"
    FOLLOWS = "follows"
    CACHED = "cached"


class Inserted(Struct, frozen=True, gc=False):
    """The answer to one submitted job. `job` is the id that now stands for the submission: its own, or that of the
    earlier job. On a conflict it is the job that holds the key or the unique name; with SPENT, the job that was purged.
    Only NEW, FOLLOWS and CACHED insert anything.

    `same` says what identified an earlier job: its id, its idempotency key or its unique name. `evicted` is the job
    that a full queue shed to make room. If the key identified the job, `code` is the digest of the code with which that
    job was submitted; it is empty if the job is gone or has none."""

    verdict: Verdict
    job: str
    seq: int = 0
    state: State | None = None
    same: Literal["", "id", "key", "unique"] = ""
    evicted: str = ""
    code: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the submission inserted a job."""
        return self.verdict in (Verdict.NEW, Verdict.FOLLOWS, Verdict.CACHED)


class KnownKey(Struct, frozen=True, gc=False):
    """The job that an idempotency key stands for, and the digest of the content it was submitted with. `is_spent` means
    that the job was purged."""

    job: str
    digest: str
    is_spent: bool = False


# -- claim and settle --------------------------------------------------------------------------------------------------


class Claim(Struct, frozen=True, kw_only=True):
    """A request for up to `limit` jobs of these queues, of these (task, version) pairs; None accepts any task.

    Each queue is named once. `served` is how many jobs this claimant has already had from each queue: the store uses it
    for the weighted round-robin between queues (`rank.virtual_time`).

    `call` identifies this request. With `repeats` the request is a retry because the answer was lost: the leases that
    the first request took, and that are still held, are returned again, ordered by seq, before any new ones. So the
    claimant learns of every lease that it holds.

    `begins` is how many of the leases, in the order of the answer, begin at once. The others are prefetched, and have
    not begun until a heartbeat says so (`Beat.begun`). None: all begin at once.

    With `job`, only the job with this id is claimed, if it is queued and every other part of the claim allows it: the
    jobs before it in rank are passed over. Queues, tasks, pauses, `max_running` and resources apply as to any claim.

    `batches` are the batch tasks among them. A job of such a task is leased together with others of the same task,
    queue and `JobSpec.batch` (`Lease.group`), which count as one towards `limit` and `begins`."""

    worker: str
    queues: tuple[str, ...] = ("default",)
    served: tuple[int, ...] = ()
    tasks: frozenset[tuple[str, int]] | None = None
    limit: int = 1
    lease_for: timedelta = timedelta(seconds=10)
    call: str | None = None
    repeats: bool = False
    begins: int | None = None
    job: str | None = None
    batches: dict[tuple[str, int], Batching] = {}


class Exchange(Struct, frozen=True, kw_only=True):
    """Settle leases, insert jobs, write records, then claim jobs, in this order and in one transaction. Any part may be
    empty."""

    settle: Sequence[Settlement] = ()
    insert: Sequence[JobSpec] = ()
    put: Sequence[Put] = ()
    claim: Claim | None = None


class Exchanged(Struct, frozen=True, kw_only=True):
    """The answer to an exchange, each list in the order of the request.

    `settled`: False means that the lease was lost, and nothing was written for it. A repeated settlement answers True.

    `next_in` is the time until the next scheduled job of the store is due, or a resource may be free; None if neither
    is known, or the claim got all it asked for. `again` means that another claim may return more at once, because this
    one reached a limit of work per transaction."""

    settled: list[bool] = []
    inserted: list[Inserted] = []
    put: list[Record | None] = []
    leases: list[Lease] = []
    next_in: timedelta | None = None
    again: bool = False


# -- the life of a lease -----------------------------------------------------------------------------------------------


class Beat(Struct, frozen=True, gc=False, kw_only=True):
    """One heartbeat, with what the running job wants to store: progress, a message, a checkpoint.

    `job` is the job's id. A store that may lose its last writes can give the same seq and fence to another job, so it
    compares the id too; if it is empty, seq and fence decide.

    `alone` is set before the work begins, and holds until another heartbeat changes it or the lease ends: nothing else
    runs in the process, so that a crash is this job's fault. None leaves it unchanged.

    `begun` is also set before the work begins: it says whether the job may have run under this lease. A lease that is
    taken over before it began is returned without charging an attempt.

    With `detach`, the attempt goes on elsewhere: the lease lasts for `lease_for` from now, and belongs to no worker any
    more, so a heartbeat without `detach` is answered as if it was lost. Another one with `detach` gives it a new
    deadline. If `by` is set, that is recorded as an event of this person. A job that is being cancelled ends instead:
    nobody else could stop it."""

    seq: int
    fence: int
    lease_for: timedelta = timedelta(seconds=10)
    progress: float | None = None
    message: str = ""
    checkpoint: bytes | None = None
    alone: bool | None = None
    begun: bool | None = None
    detach: bool = False
    by: str = ""
    job: str = ""


class Extended(Struct, frozen=True, gc=False):
    """The answer to one heartbeat. `held` is False if the lease was lost. The other fields are requests that the holder
    should follow."""

    held: bool
    cancel: bool = False
    suspend: bool = False
    preempt: bool = False


class Reap(Struct, frozen=True, kw_only=True):
    """A request to take over up to `limit` expired leases.

    A lease is taken over only if its length is at most `watched_for`, the time for which this reaper has had unbroken
    contact with the store: after an outage every holder gets one lease to report.

    `asked_at` is the caller's monotonic time, in microseconds, at which `watched_for` was measured. Leases are judged
    by that time: if the caller was suspended since, `watched_for` says nothing about leases that expired meanwhile."""

    worker: str
    watched_for: timedelta
    limit: int = 100
    lease_for: timedelta = timedelta(seconds=10)
    asked_at: int | None = None


class Advanced(Struct, frozen=True, kw_only=True):
    """What the passing of time did: `due` scheduled jobs were queued, and `expired` waiting jobs failed.

    `next_in` is the time until the next scheduled job is due, or a resource may be free; `again` means that more can be
    done at once."""

    due: int = 0
    expired: int = 0
    next_in: timedelta | None = None
    again: bool = False


# -- people ------------------------------------------------------------------------------------------------------------


class Filter(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which jobs are meant: those that match all given fields. Without any field, every job matches."""

    states: frozenset[State] = frozenset()
    reason: str | None = None
    queue: str | None = None
    task: str | None = None
    run: str | None = None
    owner: str | None = None
    key: str | None = None
    priority: int | None = None
    tag: str | None = None


class Query(Struct, frozen=True, kw_only=True):
    """A request for one page of jobs. If the filter selects only queued jobs, they are in rank order; if only scheduled
    jobs, in the order in which they are due; otherwise newest first.

    A filter without an index scans a bounded number of jobs per page, so a page may be short without being the last:
    only a cursor of None means the end."""

    filter: Filter = Filter()
    limit: int = 100
    cursor: str | None = None


class Page(Struct, frozen=True):
    """One page of jobs, and the cursor of the next page; None means that this is the last."""

    jobs: list[Job]
    cursor: str | None


class Tally(Struct, frozen=True, order=True):
    """How many jobs, `n`, of one queue, task, version and priority are in one state now."""

    queue: str
    task: str
    version: int
    priority: int
    state: State
    n: int


class Total(Struct, frozen=True, order=True):
    """A counter since the store was created, for the jobs of one queue, task, version and priority: `what` happened `n`
    times and `took` so many microseconds in total.

    submitted           accepted as new
    shortened           accepted with a shorter wait limit, because the queue was nearly full
    spared              retries that had to wait because their resource is failing
    waited              first attempts that were settled; `took` is how long their jobs had waited
    batches             exchanges that settled at least one of these jobs
    cached              jobs completed with a known result, without running; `took` is how long it had taken to compute
    followed            jobs completed with the result of another one that they waited for; `took` likewise
    calls               batch calls whose head was settled; `took` is how long the heads ran
    elements            the jobs of these calls; `took` is the same time
    detached            attempts that left their worker to go on elsewhere
    last                the latest settlement: `n` is its time, in microseconds since 1970; `took` is how long it ran
    attempts            `n` is the highest attempt number that was settled, if above one
    cancelled, failed expired, failed shed, failed error    jobs that ended without running then
    anything else       settled attempts, under the label that policy gave them: Settlement.counts_as"""

    queue: str
    task: str
    version: int
    priority: int
    what: str
    n: int
    took: int = 0


MAXIMA: Final = frozenset({"last", "attempts"})  # counters that keep the greatest (n, took); all others add up


class Position(Struct, frozen=True):
    """How many jobs are claimed before a job. Beyond 10,000 the number is a lower bound, and `exact` is False."""

    ahead: int
    exact: bool = True


class Usage(Struct, frozen=True, order=True, kw_only=True):
    """The use of a resource now: running jobs hold `used` slots, and `waiting` jobs are blocked on it. `shut_until` is
    when its breaker lets the next job try."""

    name: str
    used: int = 0
    waiting: int = 0
    shut_until: datetime | None = None


Action = Literal["cancel", "suspend", "resume", "retry", "remove", "rerank", "start"]


class Amend(Struct, frozen=True, kw_only=True):
    """A change that a person makes, to the jobs with these ids or to one chunk of the jobs that match the filter.

    cancel   a running job is only asked to stop; any other unfinished job is cancelled at once, also a detached one.
    suspend  a running job is only asked to stop; a waiting one is suspended at once. A detached job is suspended when
             its attempt ends, unless the job ends with it.
    resume   a suspended job waits again.
    rerank   to `priority` or, without one, to the rank that the queue's present discipline gives.
    start    a scheduled job is queued now, before its time.
    retry    a final job runs again with a new budget of attempts; its history and its fence continue.
    remove   final jobs only: unfinished ones must be cancelled first. Their idempotency keys are free at once."""

    action: Action
    by: str
    jobs: tuple[str, ...] = ()
    filter: Filter | None = None
    cursor: str | None = None
    limit: int = 500
    priority: int | None = None
    note: str = ""


class Amendment(Struct, frozen=True):
    """What became of a change to one job: `done`, `requested` (a running job was asked to stop), `refused` (the state
    of the job does not allow it) or `missing` (no such job). `state` is the job's state after it."""

    job: str
    verdict: Literal["done", "requested", "refused", "missing"]
    state: State | None = None


class Amended(Struct, frozen=True):
    """The answer to a change. With a filter, `cursor` continues with the next chunk; None means that this was the last
    one."""

    amendments: list[Amendment]
    cursor: str | None = None


class Feed(Struct, frozen=True):
    """A page of events, and the cursor behind the last of them. An empty page means that there are no more events yet.

    `cursors` has one cursor for each event: a reader that stops behind that event continues there, and sees each later
    event exactly once, whatever was committed meanwhile."""

    events: list[Event]
    cursor: str
    cursors: list[str] = []


class Moved(Struct, frozen=True):
    """A job as another store kept it: not running, with its history and its idempotency keys, each with the digest of
    its content.

    The `run_at` of a suspended job is the time that it will wait for after it is resumed. `holds_name` is False for an
    unfinished job that gave its unique name up to another (`JobSpec.unique_while`). Once adopted, all keys count as
    submitted when the job was created."""

    job: Job
    history: list[Event]
    keys: dict[str, str] = {}
    holds_name: bool = True


class Purge(Struct, frozen=True, kw_only=True):
    """A request to delete what retention no longer keeps, one bounded chunk.

    `moved` are jobs (id, revision) that another store has adopted: they are deleted if they have not changed since.

    The idempotency key of a deleted job stays spent until `keys_for` after it was submitted or, if the job was moved,
    after the deletion. Then the key is free, and the next purge deletes its record."""

    limit: int = 500
    events_for: timedelta = timedelta(days=2)
    keys_for: timedelta = timedelta(hours=24)
    moved: tuple[tuple[str, int], ...] = ()


class Purged(Struct, frozen=True, kw_only=True):
    """How much was deleted. `moved` answers in the order of the request; `again` means that more must be deleted."""

    jobs: int = 0
    events: int = 0
    keys: int = 0
    moved: list[bool] = []
    again: bool = False


def clock_jump(wall: int, steady: int) -> int:
    """By how much the wall clock differs from the steady clock. A difference under a second counts as 0: it comes from
    reading the two clocks one after the other."""
    return wall - steady if abs(wall - steady) > 1_000_000 else 0


def keep_until(job: Job, wall: int, steady: int) -> int | None:
    """When a store deletes a job that ended in another store, in its own steady time; None is never."""
    options = job.spec.options
    keep = options.keep_failed if job.state is State.FAILED else options.keep_completed
    if keep is None:
        return None
    ended_for = 0 if job.finished_at is None else max(0, wall - micros(job.finished_at))
    return steady + max(0, span(keep) - ended_for)


class Watch(Protocol):
    """Wake-ups for a set of topics. Open the watch, read the state, then wait: a change after the opening wakes it, so
    no change between the read and the wait is missed."""

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - a store wakes as it can
        """Return True when something in the topics may have changed, False after the timeout. A wake-up without a
        change is allowed; a missed change is not."""
        ...

    def on_wake(self, call: Callable[[], None]) -> None:
        """Have `call` called at every wake-up, on the event loop that opened the watch, before `wait` returns."""
        ...

    def close(self) -> None:
        """Stop watching. Nothing is called after this."""
        ...


def work_topic(queue: str) -> str:
    """The topic for: this queue has work."""
    return f"work:{queue}"


def worker_topic(worker: str) -> str:
    """The topic for: there is a request about a job that this worker holds."""
    return f"worker:{worker}"


def job_topic(job: str) -> str:
    """The topic for: this job is final, or was leased to its holder."""
    return f"job:{job}"


REQUEST_KIND: Final = "request"  # a record of this kind wakes the worker that it is for


def request_name(worker: str, job: str) -> str:
    """The name of the record by which someone asks a worker about a job that it holds."""
    return f"{worker} {job}"


def asked_worker(name: str) -> str:
    """The worker that a request with this name is for."""
    return name.rpartition(" ")[0]


SCHEDULE_KIND: Final = "schedule"  # a record of this kind is a schedule
SCHEDULES_TOPIC: Final = "schedules"  # the topic for: a schedule was written or deleted
SAGA_MARK_KIND: Final = "active saga"  # a record of this kind marks a saga that has not ended
SAGAS_TOPIC: Final = "sagas"  # the topic for: a saga was started, or one has ended
EVENTS_TOPIC: Final = "events"
LATEST: Final = "latest"  # the event cursor after all events there are now


# -- the cache ---------------------------------------------------------------------------------------------------------


class CacheEntry(RedactedStruct, frozen=True, kw_only=True):
    """A result that later jobs of the same flight are completed with. `job` computed it, and ran for `ran`; `parts` are
    its `JobSpec.flight_parts`. `size` is the bytes of the result, and `hits` how many jobs were completed with it, its
    followers included. It may be used `until` then; None: until it makes room. The `result` is there if the query asks
    for it."""

    flight: str
    task: str
    version: int
    job: str
    parts: dict[str, str]
    size: int
    ran: timedelta
    hits: int
    created_at: datetime
    used_at: datetime
    until: datetime | None
    result: bytes | None = None


class CacheQuery(Struct, frozen=True, kw_only=True):
    """A request for one page of known results: of a task, or of these flights.

    With `results`, the entries have their results, and are in the order in which they were created: so none is missed
    if it is used while the pages are read. Results that may not be used any more are included."""

    task: str | None = None
    flights: tuple[str, ...] = ()
    limit: int = 100
    cursor: str | None = None
    results: bool = False


class CachePage(Struct, frozen=True):
    """One page of known results, and the cursor of the next page; None means that this is the last."""

    entries: list[CacheEntry]
    cursor: str | None


class Uncache(Struct, frozen=True, kw_only=True):
    """A request to forget known results, one bounded chunk: of these flights, or of a task; with neither, all."""

    flights: tuple[str, ...] = ()
    task: str | None = None
    limit: int = 500


class Uncached(Struct, frozen=True):
    """How many results were forgotten; `again` means that there are more."""

    dropped: int
    again: bool


class Store(Protocol):
    """All state of Daybreak, and the only thing that processes share.

    If an operation raises OutcomeUnknown, its commit may or may not have happened. If it raises any other
    StoreUnavailable, nothing was written."""

    @property
    def traits(self) -> Traits:
        """What this store can promise."""
        ...

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        """Accept jobs. Each job has its own answer, so a refused one does not affect the others. A job that is answered
        NEW is durable."""
        ...

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        """Settle, insert, put and claim in one transaction: the operation that workers live by. A claim charges the
        job's attempt here, durably, before the work starts."""
        ...

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        """Extend leases, each only if its fence still matches. A lease that has expired but was not taken over is
        extended too."""
        ...

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        """Take over expired leases, each under a new fence and without charging an attempt. Policy decides what becomes
        of the jobs."""
        ...

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        """Apply what time alone decides: queue scheduled jobs that are due, and fail waiting jobs that have expired."""
        ...

    async def amend(self, amend: Amend, *, now: datetime | None = None) -> Amended:
        """Change jobs for a person, each only if its state allows it. With a filter: one chunk, and a cursor for the
        rest."""
        ...

    async def get(self, jobs: Sequence[str]) -> list[Job | None]:
        """The jobs with these ids; None for an unknown id."""
        ...

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        """What these idempotency keys stand for, all at one instant; None for a key that is free."""
        ...

    async def find(self, query: Query) -> Page:
        """One page of jobs. Following the cursor never skips or repeats a job that does not change meanwhile."""
        ...

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        """How many jobs there are, by queue, task, version, priority and state. Always equal to a recount."""
        ...

    async def totals(self, queue: str | None = None) -> list[Total]:
        """All counters since the store was created, sorted. They are written in the transactions that they count, so
        they equal a recount of everything that ever happened."""
        ...

    async def position(self, job: str) -> Position | None:
        """The position of a queued job in its queue, or of a blocked job among the jobs of its queue that wait for the
        same resource; None if the job is neither queued nor blocked."""
        ...

    async def usage(self, name: str | None = None) -> list[Usage]:
        """Every resource that is in use, waited for or configured, sorted by name. Always equal to a recount."""
        ...

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        """Events in commit order. A reader that follows the cursor sees every event exactly once. Raises CursorExpired
        if events after the cursor were purged."""
        ...

    async def history(self, job: str) -> list[Event]:
        """All events of one job. They are kept as long as the job."""
        ...

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged:
        """Delete one chunk of what retention no longer keeps: final jobs, old events, spent keys."""
        ...

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        """Jobs with everything that another store needs to adopt them, each as of one instant; None for an unknown
        id."""
        ...

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        """Accept jobs that another store kept, under their own ids and a higher fence: state, attempts, result, history
        and keys stay. A known id is answered DUPLICATE, so that the call can be repeated; a key or unique name that
        belongs to another job is answered CONFLICT. A full queue accepts them too. Raises BadInput if one of the jobs
        is running or cannot be stored: then none was adopted."""
        ...

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        """Write records, each by compare-and-set on its revision; None for a record that had changed, for which nothing
        was written."""
        ...

    async def records(self, kind: str, name: str | None = None) -> list[Record]:
        """The records of a kind, sorted by name, or only the one with this name."""
        ...

    async def cached(self, query: CacheQuery, *, now: datetime | None = None) -> CachePage:
        """One page of the results that may be used now, most recently used first. A store without the feature "cache"
        has none."""
        ...

    async def uncache(self, request: Uncache, *, now: datetime | None = None) -> Uncached:
        """Forget known results, one bounded chunk: later jobs run again. The jobs that have such a result keep it, and
        jobs that wait for a result which is being computed still get that."""
        ...

    def watch(self, topics: Iterable[str]) -> Watch:
        """Open a watch for wake-ups. A change that is committed after this call wakes it."""
        ...

    async def open(self) -> Self:
        """Prepare the store for use: connect, and create or migrate its tables."""
        ...

    async def close(self) -> None:
        """Release all connections, threads and files."""
        ...


class ConnectLimit(Protocol):
    """How long a store may take to open a connection to its server. The store asks before each connection, and reports
    how long it took. Both methods may be called from any thread, and neither blocks."""

    def seconds(self, base: timedelta) -> float:
        """The limit for the next connection. `base` is the limit that the store was configured with."""
        ...

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None:
        """Report a connection. `late` means that the store gave up after this time. A connection that failed for any
        other reason is not reported."""
        ...


class FixedLimit:
    """A limit that is always the base; the default of a store."""

    def seconds(self, base: timedelta) -> float:
        """The base, in seconds."""
        return base.total_seconds()

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None:
        """Nothing is learned."""


@runtime_checkable
class InsertsNow(Protocol):
    """Optional: a store that can insert from a plain thread, without an event loop."""

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """As `insert`, but blocks the calling thread. If no other write is in progress, the calling thread itself does
        the work."""
        ...


@runtime_checkable
class InsertsWithin(Protocol):
    """Optional: a store that can insert in a transaction of the caller, on the caller's own connection.

    The jobs exist once the caller commits. Their verdicts are determined after that, so none is returned; a full queue
    accepts them too."""

    def insert_within(self, connection: object, specs: Sequence[JobSpec]) -> list[str]:
        """Insert through a blocking connection; returns the ids of the jobs."""
        ...

    async def insert_within_async(self, connection: object, specs: Sequence[JobSpec]) -> list[str]:
        """Insert through an async connection; returns the ids of the jobs."""
        ...


@runtime_checkable
class OwnLoop(Protocol):
    """Optional: a store that works faster for a caller whose event loop runs nothing but Daybreak."""

    def own_loop(self) -> None:
        """From now on the store may do short work on the calling event loop instead of in a thread."""
        ...


class Finding(Struct, frozen=True):
    """One result of an examination. If `is_well` is False, `what` is wrong, and `cure` says what to do."""

    what: str
    is_well: bool = False
    cure: str = ""


def ok_finding(what: str) -> Finding:
    """A finding that nothing is wrong."""
    return Finding(what, is_well=True)


@runtime_checkable
class Examines(Protocol):
    """Optional: a store that can report its own condition: what it would lose in a crash, and what to change."""

    async def examine(self) -> list[Finding]:
        """The findings. Works also on a store that could not be opened, as far as that is possible from outside."""
        ...

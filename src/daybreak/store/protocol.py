"""The seam: what a store does, at the height of jobs, in batches; lists in, lists out, same order.

Every operation is one atomic transaction. Times: `now=None` is the store's own clock, which has two hands: wall
time decides only `run_at`; steady time, which never jumps nor goes back, decides leases, delays and expiry. A given
`now` sets both. What runs inside is arithmetic on numbers that policy wrote: the memory store specifies it, the others
are proven equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, Protocol, Self, runtime_checkable

from msgspec import Struct

from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, Put, Record, Settlement, State
from daybreak.core.units import micros, span

POSITION_EXACT_TO: Final = 10_000
SCANNED_PER_PAGE: Final = 10_000
SCANNED_PER_CHUNK: Final = 1000  # of a bulk change, which holds up writers while it looks
PROMOTED_PER_CLAIM: Final = 100


class Traits(Struct, frozen=True, kw_only=True):
    """What a store can and cannot promise; what is not listed in `features` is refused when a job asks for it."""

    name: str
    durable: str
    shared: bool
    features: frozenset[str] = frozenset()


# -- insert ------------------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What became of one submitted job."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    SPENT = "spent"
    FULL = "full"
    FOLLOWS = "follows"
    CACHED = "cached"


class Inserted(Struct, frozen=True, gc=False):
    """`job` is the id that now stands for the submission; on a conflict, the id of the job in the way.

    SPENT: a job with the same content ran under this key and was purged; `job` is its id, and nothing was inserted.

    `same` says by what it was known: its id, its idempotency key or its unique name. `evicted` is the job that a full
    queue has shed for it. Where the job was known by its key, `code` is the digest of the code it was submitted by; it
    is empty if the job is gone or has none."""

    verdict: Verdict
    job: str
    seq: int = 0
    state: State | None = None
    same: Literal["", "id", "key", "unique"] = ""
    evicted: str = ""
    code: str = ""


class KnownKey(Struct, frozen=True, gc=False):
    """What an idempotency key stands for: a job, and the digest of the content it was submitted with. A key whose job
    was purged is spent."""

    job: str
    digest: str
    is_spent: bool = False


# -- claim and settle --------------------------------------------------------------------------------------------------


class Claim(Struct, frozen=True, kw_only=True):
    """Ask for up to `limit` jobs of these queues, of these (task, version) pairs; None takes any task.

    `served` says how many jobs this claimant has had from each queue: the store gives turns by it (rank.turn). A queue
    is named once.

    `call` names this asking. One that `repeats` is asked again because its answer was lost: what it took the first time
    and still holds is answered once more, in the order of seq, before anything new, so that no lease is left unknown
    to its holder.

    `begins` is how many of the leases, in the order of the answer, begin as soon as they are given. Those behind them
    are claimed ahead of time and have not begun until a heartbeat says so (`Beat.begun`). None: all begin at once."""

    worker: str
    queues: tuple[str, ...] = ("default",)
    served: tuple[int, ...] = ()
    tasks: frozenset[tuple[str, int]] | None = None
    limit: int = 1
    lease_for: timedelta = timedelta(seconds=10)
    call: str | None = None
    repeats: bool = False
    begins: int | None = None


class Exchange(Struct, frozen=True, kw_only=True):
    """Settle these, insert those, put these records, then claim those: one transaction, any part may be empty."""

    settle: Sequence[Settlement] = ()
    insert: Sequence[JobSpec] = ()
    put: Sequence[Put] = ()
    claim: Claim | None = None


class Exchanged(Struct, frozen=True, kw_only=True):
    """`settled`: False means the lease was lost and nothing was written for it. Repeating a settlement answers True.

    `next_in` is when the next delayed job falls due; `again` says that more may be there at once."""

    settled: list[bool] = []
    inserted: list[Inserted] = []
    put: list[Record | None] = []
    leases: list[Lease] = []
    next_in: timedelta | None = None
    again: bool = False


# -- the life of a lease -----------------------------------------------------------------------------------------------


class Beat(Struct, frozen=True, gc=False, kw_only=True):
    """One heartbeat, with what the running job wants kept. `job` is its id: a store that may lose its last writes gives
    seqs and fences again, and compares it. Where it is empty those two decide.

    `alone` is said of the lease, before the work begins, and stays until it is said otherwise or the lease ends: the
    job runs where its death would be nobody else's fault. None leaves it as it is.

    `begun` is said likewise, before the work begins: whether the job may have run under this lease. A lease that is
    taken over before it began is handed back uncharged."""

    seq: int
    fence: int
    lease_for: timedelta = timedelta(seconds=10)
    progress: float | None = None
    message: str = ""
    checkpoint: bytes | None = None
    alone: bool | None = None
    begun: bool | None = None
    job: str = ""


class Extended(Struct, frozen=True, gc=False):
    """`held` is False when the lease was lost; the rest are requests that the holder should follow."""

    held: bool
    cancel: bool = False
    suspend: bool = False
    preempt: bool = False


class Reap(Struct, frozen=True, kw_only=True):
    """Take over leases that ran out. A lease is given up only if its own length fits into `watched_for`, the time in
    which this reaper had unbroken contact: after an outage every holder gets one lease to report."""

    worker: str
    watched_for: timedelta
    limit: int = 100
    lease_for: timedelta = timedelta(seconds=10)


class Advanced(Struct, frozen=True, kw_only=True):
    """What time alone has done: delayed jobs that became due, waiting ones that expired."""

    due: int = 0
    expired: int = 0
    next_in: timedelta | None = None
    again: bool = False


# -- people ------------------------------------------------------------------------------------------------------------


class Filter(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which jobs are meant. Empty means every job."""

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
    """One page. Queued jobs alone are listed in rank order, scheduled ones alone as they fall due, anything else newest
    first. Filters without an index look at a bounded number of jobs a page, so a page may be short and yet not the
    last: only a cursor of None means the end."""

    filter: Filter = Filter()
    limit: int = 100
    cursor: str | None = None


class Page(Struct, frozen=True):
    jobs: list[Job]
    cursor: str | None


class Tally(Struct, frozen=True, order=True):
    queue: str
    task: str
    version: int
    priority: int
    state: State
    n: int


class Total(Struct, frozen=True, order=True):
    """What has happened, since the store was made, to jobs of one queue, task, version and priority: `n` times this,
    which `took` so many microseconds together.

    submitted           accepted as new
    shortened           accepted with a shorter wait limit, because the queue was nearly full
    spared              retries that had to wait because their resource fails
    waited              first attempts that were settled, and how long their jobs had waited for them
    batches             exchanges that settled some of them
    last                the latest settlement: n is when, in microseconds since 1970; took is how long that attempt ran
    attempts            n is the highest number of attempts that was settled, where it was above one
    cancelled, failed expired, failed shed, failed error    ended without an attempt of their own
    anything else       attempts settled, as policy calls them: Settlement.counts_as"""

    queue: str
    task: str
    version: int
    priority: int
    what: str
    n: int
    took: int = 0


MAXIMA: Final = frozenset({"last", "attempts"})  # of these the greatest counts, by n and then by took; others add up


class Position(Struct, frozen=True):
    """How many jobs of its queue are claimed before it; `exact` up to 10,000, beyond that a lower bound."""

    ahead: int
    exact: bool = True


class Usage(Struct, frozen=True, order=True, kw_only=True):
    """A resource as it is now: `used` slots are held by running jobs, `waiting` jobs are blocked on it. `shut_until` is
    when its gate lets the next one try."""

    name: str
    used: int = 0
    waiting: int = 0
    shut_until: datetime | None = None


Action = Literal["cancel", "suspend", "resume", "retry", "remove", "rerank"]


class Amend(Struct, frozen=True, kw_only=True):
    """A person's change, to these ids or to a chunk of those that match the filter.

    rerank   to `priority`, or, without one, to where the queue's present discipline puts the job.
    retry    a final job, with a fresh budget of attempts; its history and fence go on.
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
    """`done`, `requested` (a running job was asked), `refused` (its state does not allow it) or `missing`."""

    job: str
    verdict: Literal["done", "requested", "refused", "missing"]
    state: State | None = None


class Amended(Struct, frozen=True):
    amendments: list[Amendment]
    cursor: str | None = None


class Feed(Struct, frozen=True):
    """A page of events, and the cursor behind the last of them. An empty page means: nothing more yet.

    `cursors` has one cursor for each event: a reader who stops behind that event goes on there, and sees each later
    event exactly once, whatever was committed meanwhile."""

    events: list[Event]
    cursor: str
    cursors: list[str] = []


class Moved(Struct, frozen=True):
    """A job as another store kept it, in nobody's hands, with its history and the idempotency keys it answers for,
    each with its digest. The `run_at` of a suspended one is the time it waits for when it is resumed. An unfinished job
    that gave its unique name up to another (JobSpec.unique_while) says so by `holds_name`.

    From the adoption on, all its keys count as submitted when the job was."""

    job: Job
    history: list[Event]
    keys: dict[str, str] = {}
    holds_name: bool = True


class Purge(Struct, frozen=True, kw_only=True):
    """Retention, one bounded chunk. `moved` are jobs (id, revision) that another store has adopted: they are dropped if
    nothing has happened to them since.

    An idempotency key of a job that goes is spent for a while: until `keys_for` after the submit under it, or, of a job
    that was moved, after it went. Then the key is free, and the next purge deletes its record."""

    limit: int = 500
    events_for: timedelta = timedelta(days=2)
    keys_for: timedelta = timedelta(hours=24)
    moved: tuple[tuple[str, int], ...] = ()


class Purged(Struct, frozen=True, kw_only=True):
    jobs: int = 0
    events: int = 0
    keys: int = 0
    moved: list[bool] = []
    again: bool = False


def clock_jump(wall: int, steady: int) -> int:
    """By how much the wall clock has jumped; less than a second is how two clocks are read one after the other."""
    return wall - steady if abs(wall - steady) > 1_000_000 else 0


def keep_until(job: Job, wall: int, steady: int) -> int | None:
    """When a job that ended elsewhere is to be forgotten, by a store's steady hand."""
    options = job.spec.options
    keep = options.keep_failed if job.state is State.FAILED else options.keep_completed
    ended_for = 0 if job.finished_at is None else max(0, wall - micros(job.finished_at))
    return None if keep is None else steady + max(0, span(keep) - ended_for)


class Watch(Protocol):
    """Open it, look, then wait: what changes after it was opened wakes it, so nothing falls between look and wait."""

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - a store wakes as it can
        """True when something of its topics may have changed; False when the time ran out. Waking for nothing is
        allowed, sleeping through a change is not."""
        ...

    def on_wake(self, call: Callable[[], None]) -> None:
        """Call this at every wake-up, on the loop that opened the watch and before `wait` comes round."""
        ...

    def close(self) -> None: ...


def work_topic(queue: str) -> str:
    """This queue has work."""
    return f"work:{queue}"


def worker_topic(worker: str) -> str:
    """This worker has a request about a job it holds."""
    return f"worker:{worker}"


def job_topic(job: str) -> str:
    """This job is final, or its holder has got it."""
    return f"job:{job}"


EVENTS_TOPIC: Final = "events"
LATEST: Final = "latest"  # the event cursor that stands after everything there is now


class Store(Protocol):
    """Where all state lives; the only thing that is shared between processes."""

    @property
    def traits(self) -> Traits: ...

    async def insert(self, specs: Sequence[JobSpec], *, now: datetime | None = None) -> list[Inserted]:
        """Accept jobs, each answering for itself. What is answered NEW is durable."""
        ...

    async def exchange(self, exchange: Exchange, *, now: datetime | None = None) -> Exchanged:
        """The one transaction by which workers live. A job's attempt is counted here, before its work starts."""
        ...

    async def extend(self, beats: Sequence[Beat], *, now: datetime | None = None) -> list[Extended]:
        """Keep leases alive, each only if its fence still holds; one that ran out but was not taken over is revived."""
        ...

    async def reap(self, reap: Reap, *, now: datetime | None = None) -> list[Lease]:
        """Take over leases that ran out, under a new fence, uncharged; what becomes of the jobs, policy says."""
        ...

    async def advance(self, limit: int = 500, *, now: datetime | None = None) -> Advanced:
        """Do what time alone decides: queue delayed jobs that are due, fail those that waited longer than they may."""
        ...

    async def amend(self, amend: Amend, *, now: datetime | None = None) -> Amended:
        """Change jobs on a person's behalf, guarded by their state. By filter: one chunk, and a cursor for the rest."""
        ...

    async def get(self, jobs: Sequence[str]) -> list[Job | None]: ...

    async def known_keys(self, keys: Sequence[str], *, now: datetime | None = None) -> list[KnownKey | None]:
        """What idempotency keys stand for at one instant; None where one is free."""
        ...

    async def find(self, query: Query) -> Page:
        """A page of jobs. Paging on never skips or repeats a job that did not change meanwhile."""
        ...

    async def count(self, where: Filter = Filter()) -> list[Tally]:  # noqa: B008 - frozen
        """How many jobs there are, by queue, task, version, priority and state; equal to a recount at any time."""
        ...

    async def totals(self, queue: str | None = None) -> list[Total]:
        """What has happened so far, in order; kept with the changes, so it equals a recount of all there ever were."""
        ...

    async def position(self, job: str) -> Position | None:
        """Where a job stands in its queue or, if it is blocked, among those of its queue that wait for the same; None
        if it does neither."""
        ...

    async def usage(self, name: str | None = None) -> list[Usage]:
        """Every resource that is in use, waited for or set up, by name; equal to a recount at any time."""
        ...

    async def events(self, after: str | None = None, limit: int = 1000) -> Feed:
        """Events in the order of commits: following the cursor shows each exactly once. CursorExpired on a gap."""
        ...

    async def history(self, job: str) -> list[Event]:
        """All events of one job, kept as long as the job."""
        ...

    async def purge(self, purge: Purge, *, now: datetime | None = None) -> Purged: ...

    async def pack(self, jobs: Sequence[str]) -> list[Moved | None]:
        """Jobs with all that another store needs to adopt them, each as it was at one instant; None where there is
        none."""
        ...

    async def adopt(self, moved: Sequence[Moved], *, by: str, now: datetime | None = None) -> list[Inserted]:
        """Take over jobs that another store kept, under their own ids and a higher fence: state, attempts, result,
        history and keys stay. Known ids answer DUPLICATE, so that a mover can ask again; keys and unique names that
        stand for others answer CONFLICT. A full queue takes them all the same. BadInput where one of them is running
        or cannot be kept: then none was adopted."""
        ...

    async def put(self, puts: Sequence[Put], *, now: datetime | None = None) -> list[Record | None]:
        """Write records, each compared by revision; None where it had changed, and then nothing was written for it."""
        ...

    async def records(self, kind: str, name: str | None = None) -> list[Record]: ...

    def watch(self, topics: Iterable[str]) -> Watch: ...

    async def open(self) -> Self: ...

    async def close(self) -> None: ...


class ConnectLimit(Protocol):
    """How long a store may try to open a connection to its server: asked before each, and told how long it took. From
    any thread; neither waits."""

    def seconds(self, base: timedelta) -> float:
        """`base` is what the store was told to be usual."""
        ...

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None:
        """`late`: it was given up then, and would have taken longer. What failed by itself is not told."""
        ...


class FixedLimit:
    """The base, whatever is seen: of a store that nobody gave another."""

    def seconds(self, base: timedelta) -> float:
        return base.total_seconds()

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None: ...


@runtime_checkable
class InsertsNow(Protocol):
    """An optional operation: stores that accept jobs also without a loop, for callers who would only wait for it."""

    def insert_now(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """As `insert`, from any thread, which waits: where nobody else writes, it does the work itself."""
        ...


@runtime_checkable
class InsertsWithin(Protocol):
    """An optional operation: stores that accept jobs in a transaction of the caller's own, on the caller's connection.

    They are there if it commits. Verdicts are found afterwards, so none is answered; a full queue takes them all the
    same."""

    def insert_within(self, connection: object, specs: Sequence[JobSpec]) -> list[str]: ...

    async def insert_within_async(self, connection: object, specs: Sequence[JobSpec]) -> list[str]: ...


@runtime_checkable
class OwnLoop(Protocol):
    """An optional operation: stores that work faster for callers whose loop serves nothing but Daybreak."""

    def own_loop(self) -> None:
        """From now on short work may be done on the loop that asks, instead of in a thread beside it."""
        ...


class Finding(Struct, frozen=True):
    """One thing that was looked at. `is_well` is False for what is wrong; then `cure` says what to do."""

    what: str
    is_well: bool = False
    cure: str = ""


def ok_finding(what: str) -> Finding:
    return Finding(what, is_well=True)


@runtime_checkable
class Examines(Protocol):
    """An optional operation: stores that can say how they are, what they would lose, and what should be changed."""

    async def examine(self) -> list[Finding]:
        """Also of a store that could not be opened, as far as it can be seen from outside."""
        ...

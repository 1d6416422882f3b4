"""The port of the kernel: what a store reads and writes inside one transaction.

Its rows, indexes and locks are the store's own business. Before a method is called whose answer depends on where jobs
are, the changes so far are written (`write_rows`); jobs are read by their number at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from daybreak.core.model import Need, Put, QueueSettings, State
from daybreak.core.rank import Rank
from daybreak.core.resource_gauge import Gauge
from daybreak.core.units import moment, period
from daybreak.store.protocol import Beat, CacheEntry, Claim
from daybreak.stores.kernel.row import LaneName, Row

NameKind = Literal["key", "unique", "record", "flight"]


class Head(Protocol):
    """A queued job as a claim looks at it: a row, or the part of it that an index has."""

    @property
    def seq(self) -> int: ...
    @property
    def name(self) -> LaneName: ...
    @property
    def batch(self) -> str | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def fence(self) -> int: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def blocked_since(self) -> int | None: ...
    @property
    def is_suspect(self) -> bool: ...


class Mate(Protocol):
    """A queued or blocked job that the batch call of another may take along."""

    @property
    def seq(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def is_suspect(self) -> bool: ...


@dataclass(slots=True)
class KeyEntry:
    """The job of an idempotency key. If the job was deleted, `seq` is None and the key is spent `until` then."""

    digest: str
    job: str
    seq: int | None
    until: int | None = None

    def is_free(self, now: int) -> bool:
        """Whether another job may use the key: it is spent, and its time is over."""
        return self.seq is None and (self.until is None or self.until <= now)


class NewKey(NamedTuple):
    """An idempotency key that now stands for a job. `at` is the time of its submit; None is that of the job."""

    key: str
    digest: str
    job: str
    at: int | None


class NameChange(NamedTuple):
    """What became of a unique name. `take`: it now belongs to the job. `release`: it is free if the job still has it.
    `free`: it is free, whoever has it."""

    name: str
    seq: int
    kind: Literal["take", "release", "free"]


class NextDue(NamedTuple):
    """When the next job falls due by steady and by wall time, and when the waiters of a resource are checked next.
    `landing`: a flight has followers that must be looked after now."""

    steady: int | None
    wall: int | None
    look: int | None
    landing: bool = False


@dataclass(slots=True, kw_only=True)
class FlightEntry:
    """A flight, or a known result. Times are steady, in microseconds.

    As long as no result `is_known`, `leader` is the job that computes it. Then the entry has the result, the `job` that
    computed it, and how long that `ran`. `refs` jobs point to it (`Row.result_of`). An entry that was dropped from the
    cache has no `flight` any more, and is deleted when no job points to it. While it is `landing`, some of its
    followers still wait: to be completed or, without a result, for one of them to lead.

    The store reads no `result`: it writes the one of an entry that `has_new_result`, once."""

    number: int
    flight: str | None
    task: str
    version: int
    created: int
    used: int
    leader: int | None = None
    landing: bool = False
    is_known: bool = False
    job: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    size: int = 0
    ran: int = 0
    until: int | None = None
    hits: int = 0
    refs: int = 0
    result: bytes | None = None
    has_new_result: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether nothing refers to the entry any more."""
        return self.flight is None and not self.refs

    @property
    def counts(self) -> bool:
        """Whether the result takes up room in the cache."""
        return self.is_known and self.flight is not None

    def is_usable(self, steady: int) -> bool:
        """Whether later jobs may have the result."""
        return self.counts and (self.until is None or steady < self.until)


@dataclass(slots=True)
class HeldLease:
    """The part of a lease that a heartbeat reads and changes. None leaves a value as it is. Only a
    lease that `is_held` is written: its heartbeat had the right fence. `detach` is the heartbeat that detaches it."""

    seq: int
    job: str
    fence: int
    n: int
    worker: str
    is_cancelled: bool
    is_suspending: bool
    is_detached: bool = False
    is_held: bool = False
    term: int = 0
    alone: bool | None = None
    ahead: bool | None = None
    checkpoint: bytes | None = None
    progress: float | None = None
    message: str = ""
    detach: Beat | None = None


def entry_of(entry: FlightEntry, result: bytes | None = None) -> CacheEntry:
    """What callers see of a known result."""
    assert entry.flight is not None
    return CacheEntry(
        flight=entry.flight, task=entry.task, version=entry.version, job=entry.job, parts=entry.parts, size=entry.size,
        ran=period(entry.ran), hits=entry.hits, created_at=moment(entry.created), used_at=moment(entry.used),
        until=None if entry.until is None else moment(entry.until), result=result,
    )  # fmt: skip


class FlightTables:
    """The tables of the cache. Only a store with the feature "cache" has them: no other is given a job with a
    flight. Before they are read, what was changed is written."""

    def read_flights(self, flights: Sequence[str]) -> dict[str, FlightEntry]:  # noqa: ARG002
        """The entries of these flights, locked."""
        return {}

    def read_entries(self, numbers: Sequence[int]) -> list[FlightEntry]:  # noqa: ARG002
        """The entries with these numbers, locked."""
        return []

    def lock_free_flights(self, flights: Sequence[str]) -> list[str]:
        """Lock those of these flights that no other transaction has locked, and return them: to wait could be a
        deadlock."""
        return list(flights)

    def next_entry(self) -> int:
        """A new number for an entry."""
        raise NotImplementedError

    def write_entries(self, entries: Sequence[FlightEntry]) -> None:
        """Write entries, and the results of those that have a new one; delete those that are gone."""
        raise NotImplementedError

    def add_room(self, task: str, entries: int, size: int) -> None:
        """So many results, of so many bytes together, were added to the cache of a task; or removed, if negative."""
        raise NotImplementedError

    def read_room(self, task: str) -> tuple[int, int]:
        """How many results a task has in the cache, and how many bytes they are."""
        raise NotImplementedError

    def least_used(self, task: str, limit: int) -> list[str]:
        """The flights of a task with a known result that were used longest ago, without those that are landing."""
        raise NotImplementedError

    def known_flights(self, task: str | None, limit: int) -> list[str]:  # noqa: ARG002
        """Flights with a known result, of a task or of all, in the order of their entries' numbers."""
        return []

    def lapsed_flights(self, limit: int) -> list[str]:  # noqa: ARG002
        """The flights whose result may not be used any more, without those that are landing."""
        return []

    def landing_flights(self, limit: int) -> list[str]:  # noqa: ARG002
        """The flights with followers that must be looked after."""
        return []


class Tables(FlightTables, ABC):
    """The tables of a store inside one transaction. `wall` and `steady` are the store's clocks, in microseconds."""

    wall: int
    steady: int
    row_type: type[Row] = Row

    # -- reading -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def read_rows(self, seqs: Sequence[int]) -> Iterable[Row]:
        """Read jobs and lock them until the end of the transaction."""

    def peek_rows(self, seqs: Sequence[int]) -> Iterable[Row]:
        """Read jobs without a lock."""
        return self.read_rows(seqs)

    @abstractmethod
    def seqs_of(self, ids: Sequence[str]) -> dict[str, int]:
        """The numbers of the jobs with these ids, as far as they exist and are written."""

    @abstractmethod
    def read_keys(self, keys: Sequence[str]) -> dict[str, KeyEntry]:
        """The entries of idempotency keys."""

    @abstractmethod
    def read_holders(self, names: Sequence[str]) -> dict[str, int]:
        """The jobs that have these unique names."""

    @abstractmethod
    def read_settings(self, queues: Sequence[str]) -> Mapping[str, QueueSettings]:
        """The settings of each of these queues; the default for one without any."""

    @abstractmethod
    def read_tallies(self, queues: Sequence[str], states: frozenset[State]) -> dict[str, int]:
        """How many jobs of these queues were in these states before this transaction."""

    @abstractmethod
    def heads(self, queues: Sequence[str], claim: Claim, limit: int, seen: Sequence[int]) -> dict[str, Iterator[Head]]:
        """The queued jobs of each queue that the claim may have, in rank order: at least the first `limit`, without
        those already `seen`. With `claim.job`, only that job."""

    @abstractmethod
    def company(self, head: Head, limit: int, seen: Collection[int]) -> Iterator[Mate]:
        """The jobs that the batch call of this one may take along (`Row.company_at`): those of its lane and batch key,
        in rank order, without itself and those already `seen`; at least the first `limit`."""

    @abstractmethod
    def last_in_rank(self, queue: str, cause: str | None) -> int | None:
        """The last in rank of the queued and blocked jobs of a queue; with a cause, of those blocked on it."""

    @abstractmethod
    def leases_of_call(self, worker: str, call: str) -> list[int]:
        """The jobs that a claim with this name has leased and still holds, by number."""

    @abstractmethod
    def leases_of_group(self, group: int) -> list[int]:
        """The jobs of a batch call that are still leased, by number."""

    @abstractmethod
    def lapsed(self, until: int, longest: int, limit: int) -> list[int]:
        """The leases that ended by then and are not longer than that, earliest first, locked."""

    @abstractmethod
    def due(self, clock: int, until: int, limit: int) -> list[int]:
        """The scheduled jobs that are due by this clock, earliest first, locked."""

    @abstractmethod
    def overdue(self, limit: int) -> list[int]:
        """The waiting jobs that have expired, earliest first."""

    @abstractmethod
    def next_due(self) -> NextDue:
        """When something happens next by itself."""

    @abstractmethod
    def waiting(self, cause: str, limit: int) -> int:
        """How many jobs are blocked on this. There may be very many: a store that must count them stops at `limit`."""

    @abstractmethod
    def waiting_by_lane(self, cause: str, limit: int) -> list[list[int]]:
        """The first jobs of each lane that are blocked on this, in rank order; lanes in the order of their names."""

    @abstractmethod
    def read_gauges(self, names: Sequence[str]) -> Mapping[str, Gauge]:
        """The gauges of these resources; a new one for a resource that was never used. The transaction changes copies:
        a store may cache these."""

    @abstractmethod
    def gauges_to_look_at(self, limit: int) -> list[str]:
        """The resources whose waiters must be checked because of the time."""

    @abstractmethod
    def stale_jobs(self, limit: int) -> list[int]:
        """The final jobs that are no longer kept, oldest first, locked."""

    @abstractmethod
    def read_revision(self, kind: str, name: str) -> int:
        """The revision of a record; 0 if there is none."""

    @abstractmethod
    def read_leases(self, seqs: Sequence[int]) -> dict[int, HeldLease]:
        """Leases for heartbeats, locked."""

    # -- writing -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def next_seq(self) -> int:
        """A new number for a job."""

    def expect_new(self, count: Callable[[], int]) -> None:
        """At least so many new jobs follow: a store may draw their numbers together. More than needed would leave gaps:
        stores number their jobs alike."""

    @abstractmethod
    def write_rows(self, rows: Sequence[Row]) -> None:
        """Write jobs where they belong now (`place`), not where they were (`stored`; None: it is new)."""

    @abstractmethod
    def delete_rows(self, rows: Sequence[Row]) -> None:
        """Delete jobs."""

    @abstractmethod
    def write_names(self, changes: Sequence[NameChange]) -> None:
        """Write who has unique names."""

    @abstractmethod
    def write_keys(self, keys: Sequence[NewKey]) -> None:
        """Write idempotency keys, also over earlier entries."""

    @abstractmethod
    def free_keys(self, job: str) -> None:
        """Delete the keys of a job."""

    @abstractmethod
    def spend_keys(self, row: Row, keys_for: int, since: int | None) -> None:
        """The keys of a job that is deleted stay spent for so long after their submit; or after `since`, if given."""

    @abstractmethod
    def write_gauges(self, gauges: Mapping[str, Gauge]) -> None:
        """Write changed gauges. They are copies, too."""

    @abstractmethod
    def next_revision(self) -> int:
        """A new revision. All records share one series, so a record that is deleted and written again has a new one."""

    @abstractmethod
    def write_record(self, put: Put, revision: int) -> None:
        """Write or delete a record."""

    @abstractmethod
    def write_settings(self, queue: str, settings: QueueSettings | None) -> None:
        """Apply the settings of a queue; None are the default ones."""

    @abstractmethod
    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        """Extend leases."""

    @abstractmethod
    def purge_feed(self, before: int, limit: int) -> tuple[int, bool]:
        """Delete old events. Returns how many, and whether there may be more."""

    @abstractmethod
    def purge_keys(self, limit: int) -> int:
        """Delete spent keys whose time is over."""

    # -- only for stores with concurrent transactions ------------------------------------------------------------------

    def lock_queues(self, queues: Sequence[str]) -> None:
        """Lock queues with a limit: only counts that are read afterwards are exact."""

    def lock_names(self, kind: NameKind, names: Iterable[str]) -> None:
        """Lock names that may not exist yet, so that two transactions cannot create them at once."""

    def prepare_resources(self, resources: Sequence[str], *, is_bounded: bool, has_holders: bool) -> None:
        """New jobs need these resources. With `is_bounded`, their `max_waiting` decides whether a job is accepted; with
        `has_holders`, some of the jobs wait for them at once."""

    def before_claim(self, claim: Claim) -> None:
        """A claim follows: accept jobs that were submitted by other ways."""

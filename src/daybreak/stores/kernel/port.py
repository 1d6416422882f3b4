"""The port of the kernel: what a store reads and writes inside one transaction.

Its rows, indexes and locks are the store's own business. Before a method is called whose answer depends on where jobs
are, the changes so far are written (`write_rows`); jobs are read by their number at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from daybreak.core.model import Need, Put, QueueSettings, State
from daybreak.core.rank import Rank
from daybreak.core.resource_gauge import Gauge
from daybreak.store.protocol import Beat, Claim
from daybreak.stores.kernel.row import Row

NameKind = Literal["key", "unique", "record"]


class Head(Protocol):
    """A queued job as a claim looks at it: a row, or the part of it that an index has."""

    @property
    def seq(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def blocked_since(self) -> int | None: ...


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
    """When the next job falls due by steady and by wall time, and when the waiters of a resource are checked next."""

    steady: int | None
    wall: int | None
    look: int | None


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


class Tables(ABC):
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
    def last_in_rank(self, queue: str, cause: str | None) -> int | None:
        """The last in rank of the queued and blocked jobs of a queue; with a cause, of those blocked on it."""

    @abstractmethod
    def leases_of_call(self, worker: str, call: str) -> list[int]:
        """The jobs that a claim with this name has leased and still holds, by number."""

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

    def expect_new(self, count: Callable[[], int]) -> None:  # noqa: B027 - most stores need nothing here
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

    def lock_queues(self, queues: Sequence[str]) -> None:  # noqa: B027 - most stores need nothing here
        """Lock queues with a limit: only counts that are read afterwards are exact."""

    def lock_names(self, kind: NameKind, names: Iterable[str]) -> None:  # noqa: B027 - most stores need nothing here
        """Lock names that may not exist yet, so that two transactions cannot create them at once."""

    def prepare_resources(self, resources: Sequence[str], *, is_bounded: bool, has_holders: bool) -> None:  # noqa: B027 - most stores need nothing here
        """New jobs need these resources. With `is_bounded`, their `max_waiting` decides whether a job is accepted; with
        `has_holders`, some of the jobs wait for them at once."""

    def before_claim(self, claim: Claim) -> None:  # noqa: B027 - most stores need nothing here
        """A claim follows: accept jobs that were submitted by other ways."""

"""One job as a transaction works on it, and where the store has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

from daybreak.core.events import Event, submitted
from daybreak.core.model import FINAL, Failure, Job, JobSpec, Lease, Need, Options, Reason, State
from daybreak.core.rank import Rank
from daybreak.core.units import micros, moment, period, span
from daybreak.core.wait_limit import SHORTENED_NOTE
from daybreak.store.protocol import Filter
from daybreak.stores.kernel.history import JSON_LINES, HistoryFormat

LaneName = tuple[str, str, int]  # queue, task, version

STEADY: Final = 0  # the clock that decides when a job with a delay falls due
WALL: Final = 1  # the clock that decides when a job with `run_at` falls due


class Place(NamedTuple):
    """Where the store has a job: what its indexes and counters depend on."""

    state: State
    band: int
    ord: int
    priority: int
    expires: int | None
    clock: int | None
    due: int | None
    cause: str | None


@dataclass(slots=True, eq=False, kw_only=True)
class Row:
    """One job in any state. Times are microseconds: `created`, `started` and `finished` are wall time, the others
    steady time; `due` is by the clock that `clock` names.

    `stored` is where the store has the job; None for a job that is not written yet. `read_spec` decodes the rest of the
    spec when it is first needed, which most transitions never do. `ahead` is set while a lease is prefetched and has
    not begun. `cause` is what a blocked job waits for, and `blocked_since` when that began.

    A job with a `flight` whose result is kept has it not itself: `result_of` is the entry that has it, and a store that
    writes the row leaves `result` out. `cached_from` is the job whose result it is, if that is another one.

    `group` is the batch call that a running job is in: the number of its head. `elements` is how many jobs the call of
    a head has; 0 for all others."""

    lines: ClassVar[HistoryFormat] = JSON_LINES

    seq: int
    id: str
    name: LaneName
    options: Options
    unique: str | None
    priority: int
    created: int
    arrived: int
    batch: str | None = None
    read_spec: Callable[[], JobSpec] | None = None
    known_spec: JobSpec | None = None
    band: int = 0
    ord: int = 0
    expires: int | None = None
    shortened: bool = False
    state: State = State.QUEUED
    attempt: int = 0
    fence: int = 0
    n: int = 1
    lost: int = 0
    timeouts: int = 0
    checkpoint: bytes | None = None
    failure: Failure | None = None
    note: str = ""
    message: str = ""
    progress: float | None = None
    started: int | None = None
    blocked_since: int | None = None
    history: Any = None
    clock: int | None = None
    due: int | None = None
    cause: str | None = None
    worker: str | None = None
    until: int | None = None
    term: int = 0
    call: str | None = None
    group: int | None = None
    elements: int = 0
    reaped: bool = False
    alone: bool = False
    ahead: bool = False
    detached: bool = False
    suspending: bool = False
    cancelling: str | None = None
    reason: str | None = None
    finished: int | None = None
    purge_at: int | None = None
    result: bytes | None = None
    flight: str | None = None
    result_of: int | None = None
    cached_from: str | None = None
    stored: Place | None = field(default=None)

    @property
    def spec(self) -> JobSpec:
        """The job as it was submitted."""
        if self.known_spec is None:
            assert self.read_spec is not None
            self.known_spec = self.read_spec()
        return self.known_spec

    @property
    def queue(self) -> str:
        return self.name[0]

    @property
    def needs(self) -> tuple[Need, ...]:
        """The resources that the job holds while it runs."""
        return self.options.resources

    @property
    def rank(self) -> Rank:
        return Rank(self.band, self.ord, self.seq)

    @property
    def is_suspect(self) -> bool:
        """Whether an attempt crashed or ran into its limit: such a job runs in no batch call with others."""
        return self.lost > 0 or self.timeouts > 0

    @property
    def place(self) -> Place:
        """Where the job belongs now."""
        return Place(
            self.state, self.band, self.ord, self.priority, self.expires, self.clock, self.due, self.cause
        )  # fmt: skip

    @property
    def due_at(self) -> datetime | None:
        """When a scheduled job falls due."""
        return moment(self.due) if self.due is not None and self.state is State.SCHEDULED else None

    def company_at(self, place: Place) -> str | None:
        """The batch key under which a call may take the job along from this place: while it is queued, or blocked on a
        resource, because the head of the call takes that for all."""
        if self.batch is None or place.state is State.QUEUED:
            return self.batch
        is_blocked = place.state is State.BLOCKED and any(need.resource == place.cause for need in self.needs)
        return self.batch if is_blocked else None

    def as_job(self) -> Job:
        """What callers see of the job."""
        return Job(
            spec=self.spec,
            seq=self.seq,
            state=self.state,
            reason=None if self.reason is None else Reason(self.reason),
            blocked_on=self.cause if self.state is State.BLOCKED else None,
            priority=self.priority,
            attempt=self.attempt,
            fence=self.fence,
            revision=self.n,
            lost=self.lost,
            timeouts=self.timeouts,
            created_at=moment(self.created),
            updated_at=self.lines.last_time(self.history) or moment(self.created),
            run_at=self.due_at,
            expires_at=_moment(self.expires),
            started_at=_moment(self.started),
            finished_at=_moment(self.finished),
            worker=self.lines.last_holder(self.history) if self.state in FINAL else self.worker,
            group=self.group,
            leased_until=_moment(self.until),
            progress=self.progress,
            message=self.message,
            note=self.note,
            cancelling=self.cancelling is not None,
            suspending=self.suspending,
            detached=self.detached,
            checkpoint=self.checkpoint,
            result=self.result,
            cached_from=self.cached_from,
            failure=self.failure,
        )

    def as_lease(self) -> Lease:
        """The lease of a running job."""
        assert self.worker is not None
        assert self.until is not None
        assert self.started is not None
        return Lease(
            seq=self.seq,
            spec=self.spec,
            fence=self.fence,
            attempt=self.attempt,
            priority=self.priority,
            worker=self.worker,
            until=moment(self.until),
            lease_for=period(self.term),
            started_at=moment(self.started),
            created_at=moment(self.created),
            lost=self.lost,
            timeouts=self.timeouts,
            checkpoint=self.checkpoint,
            call=self.call,
            reaped=self.reaped,
            alone=self.alone,
            begun=not self.ahead,
            group=self.group,
            detached=self.detached,
        )

    def first_event(self) -> Event:
        """The event `submitted`. It is not stored with the history, because the immutable part has all of it."""
        spec = self.spec
        due = first_due(spec, self.created, self.arrived)
        waits = State.QUEUED if spec.holder is None else State.BLOCKED
        state = waits if due is None else State.SCHEDULED
        note = SHORTENED_NOTE if self.shortened else ""
        return submitted(spec, state, moment(self.created), None if due is None else moment(due[1]), note)

    def events(self) -> list[Event]:
        """All events of the job that are kept."""
        return self.lines.whole(self.first_event(), self.history)

    def matches(self, where: Filter) -> bool:
        """Whether the filter means this job."""
        return (
            (not where.states or self.state in where.states)
            and where.reason in (None, self.reason)
            and where.queue in (None, self.name[0])
            and where.task in (None, self.name[1])
            and where.priority in (None, self.priority)
            and (where.run is None or where.run == self.spec.run)
            and (where.owner is None or where.owner == self.spec.owner)
            and (where.key is None or where.key == self.spec.key)
            and (where.tag is None or where.tag in self.spec.tags)
        )


def _copier() -> Callable[[Row], Row]:
    """A copy of a row, one assignment a field: `copy.copy` takes ten times as long, and memory copies every row."""
    assignments = "\n".join(f"    new.{one.name} = row.{one.name}" for one in fields(Row))
    names: dict[str, Any] = {}
    exec(f"def copied(row):\n    new = row.__class__.__new__(row.__class__)\n{assignments}\n    return new", names)  # noqa: S102 - our own field names
    return names["copied"]  # type: ignore[no-any-return]


Row.__copy__ = _copier()  # type: ignore[attr-defined]


def first_due(spec: JobSpec, wall: int, steady: int) -> tuple[int, int] | None:
    """The clock and the instant at which a new job falls due; None if it is due now."""
    if spec.run_at is not None:
        due = micros(spec.run_at)
        return (WALL, due) if due > wall else None
    if spec.delay is not None:
        due = steady + span(spec.delay)
        return (STEADY, due) if due > steady else None
    return None


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)

"""Conversion between rows and the model: what is a column, and what is packed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.events import Event, submitted
from daybreak.core.model import DEFAULT_OPTIONS, FINAL, Failure, Job, JobSpec, Lease, Need, Options, Reason, State
from daybreak.core.units import clean, micros, moment, span
from daybreak.stores.postgres import event_lines

STEADY, WALL = 0, 1
HOLD_FOR = JobSpec(id="", task="").hold_for


class SpecExtras(Struct, omit_defaults=True):
    """Fields of a spec that few jobs use; NULL for most."""

    delay: timedelta | None = None
    run_at: datetime | None = None
    digest: str = ""
    on_conflict: Literal["return", "replace", "raise", "refuse"] = "return"
    unique_while: Literal["unfinished", "waiting"] = "unfinished"
    code: str = ""
    tags: tuple[str, ...] = ()
    meta: dict[str, str] = {}
    batch: str | None = None
    flight: str | None = None
    after: tuple[str, ...] = ()
    deadline: datetime | None = None
    holder: str | None = None
    hold_for: timedelta = HOLD_FOR
    trace: str | None = None


class JobState(Struct, omit_defaults=True):
    """What a job carries over from earlier attempts; NULL before the first. A claim changes none of it but `since`,
    the time since which the job has waited for a resource: a claim clears it."""

    lost: int = 0
    timeouts: int = 0
    checkpoint: bytes | None = None
    failure: Failure | None = None
    since: int | None = None


_pack = msgspec.msgpack.Encoder().encode
_unpack_extra = msgspec.msgpack.Decoder(SpecExtras).decode
_unpack_carry = msgspec.msgpack.Decoder(JobState).decode
_unpack_options = msgspec.msgpack.Decoder(Options).decode
_EMPTY = _pack({})

# Jobs of one task share their options, so these caches stay small even for millions of rows.
_options_known: dict[bytes, Options] = {}
_options_packed: dict[int, tuple[Options, bytes | None]] = {}
_needs_known: dict[str, tuple[Need, ...]] = {}
_needs_packed: dict[tuple[Need, ...], str] = {}


def pack_options(options: Options) -> bytes | None:
    if options is DEFAULT_OPTIONS:
        return None
    known = _options_packed.get(id(options))
    if known is not None and known[0] is options:
        return known[1]
    if len(_options_packed) > 1000:
        _options_packed.clear()
    packed = _or_null(_pack(options))
    _options_packed[id(options)] = (options, packed)
    return packed


def unpack_options(packed: bytes | None) -> Options:
    if packed is None:
        return DEFAULT_OPTIONS
    if (known := _options_known.get(packed)) is None:
        if len(_options_known) > 1000:
            _options_known.clear()
        known = _options_known[packed] = _unpack_options(packed)
    return known


def pack_needs(needs: tuple[Need, ...]) -> str | None:
    if not needs:
        return None
    if (packed := _needs_packed.get(needs)) is None:
        for need in needs:
            check_resource(need.resource)
        if len(_needs_packed) > 1000:
            _needs_packed.clear()
        packed = _needs_packed[needs] = msgspec.json.encode({n.resource: n.slots for n in needs}).decode()
    return packed


def unpack_needs(packed: str | None) -> tuple[Need, ...]:
    if packed is None:
        return ()
    if (known := _needs_known.get(packed)) is None:
        if len(_needs_known) > 1000:
            _needs_known.clear()
        slots = msgspec.json.decode(packed, type=dict[str, int])
        known = _needs_known[packed] = tuple(Need(resource, n) for resource, n in slots.items())
    return known


def check_resource(resource: str) -> None:
    if "\0" in resource or resource != clean(resource):
        raise BadInput(f"resource {resource!r}: its name has a character that PostgreSQL cannot store")


def pack_extra(spec: JobSpec) -> bytes | None:
    if (
        spec.key is None
        and spec.delay is None
        and spec.run_at is None
        and spec.unique is None
        and not (spec.tags or spec.meta or spec.batch or spec.flight or spec.after or spec.deadline)
        and spec.holder is None
        and spec.trace is None
        and not spec.code
        and spec.hold_for == HOLD_FOR
    ):
        return None
    return _or_null(_pack(SpecExtras(**{name: getattr(spec, name) for name in SpecExtras.__struct_fields__})))


def pack_carry(carry: JobState) -> bytes | None:
    return _or_null(_pack(carry))


def unpack_carry(packed: bytes | None) -> JobState:
    return JobState() if packed is None else _unpack_carry(packed)


def _or_null(packed: bytes) -> bytes | None:
    return None if packed == _EMPTY else packed


LaneName = tuple[str, str, int]
Values = tuple[Any, ...]


def spec_of(
    lane: LaneName,
    id: str,  # noqa: A002
    asked: int,
    by: str,
    run: str | None,
    owner: str | None,
    key: str | None,
    uniq: str | None,
    options: bytes | None,
    extra: bytes | None,
    args: bytes,
) -> JobSpec:
    queue, task, version = lane
    if extra is None:
        return JobSpec(
            id=id, task=task, args=args, queue=queue, version=version, priority=asked, by=by, run=run, owner=owner,
            key=key, unique=uniq, options=DEFAULT_OPTIONS if options is None else unpack_options(options),
        )  # fmt: skip
    extras = _unpack_extra(extra)
    return JobSpec(
        id=id, task=task, args=args, queue=queue, version=version, priority=asked, by=by, run=run, owner=owner, key=key,
        unique=uniq, options=unpack_options(options),
        **{name: getattr(extras, name) for name in SpecExtras.__struct_fields__},
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class Row:
    """One job in any state: the columns of the statement `load_jobs`."""

    seq: int
    id: str
    lane: int
    name: LaneName
    band: int
    ord: int
    priority: int
    asked: int
    created: int
    arrived: int
    expires: int | None
    by: str
    run: str | None
    owner: str | None
    key: str | None
    uniq: str | None
    options: bytes | None
    extra: bytes | None
    args: bytes
    state: State
    attempt: int
    fence: int
    n: int
    started: int | None
    progress: float | None
    carry: JobState
    note: bytes | None
    message: bytes | None
    history: str | None
    clock: int | None
    due: int | None
    worker: str | None
    until: int | None
    term: int | None
    call: str | None
    reaped: bool | None
    alone: bool | None
    suspending: bool | None
    cancelling: bytes | None
    reason: str | None
    finished: int | None
    purge_at: int | None
    result: bytes | None
    cause: str | None = None
    ahead: bool | None = None
    spec: JobSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = spec_of(
            self.name, self.id, self.asked, self.by, self.run, self.owner, self.key, self.uniq, self.options,
            self.extra, self.args,
        )  # fmt: skip

    @classmethod
    def of(cls, values: Values, name: LaneName) -> Row:
        """Make one from a row of the statement `load_jobs`."""
        fields = list(values)
        fields[24] = unpack_carry(values[24])
        fields[18] = State(values[18])
        fields.insert(3, name)
        return cls(*fields)

    @property
    def queue(self) -> str:
        return self.name[0]

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.spec.options.resources

    @property
    def since(self) -> int | None:
        return self.carry.since

    def as_job(self) -> Job:
        carry = self.carry
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
            lost=carry.lost,
            timeouts=carry.timeouts,
            created_at=moment(self.created),
            updated_at=event_lines.last_time(self.history) or moment(self.created),
            run_at=self.due_at,
            expires_at=_moment(self.expires),
            started_at=_moment(self.started),
            finished_at=_moment(self.finished),
            worker=event_lines.last_holder(self.history or "") if self.state in FINAL else self.worker,
            leased_until=_moment(self.until),
            progress=self.progress,
            message=(self.message or b"").decode(),
            note=(self.note or b"").decode(),
            cancelling=self.cancelling is not None,
            suspending=bool(self.suspending),
            checkpoint=carry.checkpoint,
            result=self.result,
            failure=carry.failure,
        )

    def as_lease(self) -> Lease:
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
            lease_for=timedelta(microseconds=self.term or 0),
            started_at=moment(self.started),
            created_at=moment(self.created),
            lost=self.carry.lost,
            timeouts=self.carry.timeouts,
            checkpoint=self.carry.checkpoint,
            call=self.call,
            reaped=bool(self.reaped),
            alone=bool(self.alone),
            begun=not self.ahead,
        )

    @property
    def due_at(self) -> datetime | None:
        return moment(self.due) if self.due is not None and self.state is State.SCHEDULED else None

    def first_event(self) -> Event:
        """The `submitted` event. It is not stored with the history because the immutable row has all of it."""
        due = first_due(self.spec, self.created, self.arrived)
        state = State.SCHEDULED if due is not None else State.QUEUED if self.spec.holder is None else State.BLOCKED
        return submitted(self.spec, state, moment(self.created), None if due is None else moment(due[1]))

    def events(self) -> list[Event]:
        return event_lines.whole(self.first_event(), self.history)


def first_due(spec: JobSpec, wall: int, steady: int) -> tuple[int, int] | None:
    """The clock and the time at which a new job falls due; None if it is due now."""
    if spec.run_at is not None:
        due = micros(spec.run_at)
        return (WALL, due) if due > wall else None
    if spec.delay is not None:
        due = steady + span(spec.delay)
        return (STEADY, due) if due > steady else None
    return None


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def text_bytes(text: str) -> bytes | None:
    return text.encode() if text else None

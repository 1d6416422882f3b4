"""Conversion between rows and the model: some fields are columns, the others are packed into a few columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from daybreak.core.events import (
    FOLD_FROM,
    KEPT_UNFOLDED,
    Event,
    decode_lines,
    encode,
    last_holder_in,
    last_time_in,
    shorten_history,
    submitted,
)
from daybreak.core.model import DEFAULT_OPTIONS, FINAL, Failure, Job, JobSpec, Lease, Options, Reason, State
from daybreak.core.units import micros, moment, span
from daybreak.core.wait_limit import SHORTENED_NOTE

STEADY, WALL = 0, 1


class SpecExtras(Struct, omit_defaults=True):
    """Fields that few jobs have; NULL for most. All are from the spec, except `shortened`: the wait limit was cut."""

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
    hold_for: timedelta = timedelta(seconds=7)
    trace: str | None = None
    shortened: bool = False


class JobState(Struct, omit_defaults=True):
    """What a job carries over from earlier attempts; NULL before the first."""

    lost: int = 0
    timeouts: int = 0
    checkpoint: bytes | None = None
    failure: Failure | None = None
    note: str = ""
    started: int | None = None
    progress: float | None = None
    message: str = ""
    blocked_since: int | None = None


_OF_SPEC: Final = tuple(name for name in SpecExtras.__struct_fields__ if name != "shortened")

_pack = msgspec.msgpack.Encoder().encode
_unpack_extra = msgspec.msgpack.Decoder(SpecExtras).decode
_unpack_carry = msgspec.msgpack.Decoder(JobState).decode
_unpack_options = msgspec.msgpack.Decoder(Options).decode
_EMPTY = _pack({})

Totals = dict[str, tuple[int, int]]  # what happened -> how often, and the total time in microseconds
pack_totals = _pack
unpack_totals = msgspec.msgpack.Decoder(Totals).decode

# Jobs of one task share their options, so these caches stay small even for millions of rows.
_options_known: dict[bytes, Options] = {}
_options_packed: dict[int, tuple[Options, bytes | None]] = {}


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


def pack_extra(spec: JobSpec, *, shortened: bool = False) -> bytes | None:
    if (
        spec.key is None
        and spec.delay is None
        and spec.run_at is None
        and spec.unique is None
        and not (spec.tags or spec.meta or spec.batch or spec.flight or spec.after or spec.deadline)
        and spec.holder is None
        and spec.trace is None
        and not spec.code
        and not shortened
    ):
        return None
    return _or_null(_pack(SpecExtras(**{name: getattr(spec, name) for name in _OF_SPEC}, shortened=shortened)))


def pack_carry(carry: JobState | None) -> bytes | None:
    return None if carry is None else _or_null(_pack(carry))


def unpack_carry(packed: bytes | None) -> JobState:
    return JobState() if packed is None else _unpack_carry(packed)


def _or_null(packed: bytes) -> bytes | None:
    return None if packed == _EMPTY else packed


LaneName = tuple[str, str, int]


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
    more = _unpack_extra(extra)
    return JobSpec(
        id=id, task=task, args=args, queue=queue, version=version, priority=asked, by=by, run=run, owner=owner, key=key,
        unique=uniq, options=unpack_options(options),
        **{name: getattr(more, name) for name in _OF_SPEC},
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class Row:
    """One job in any state: its immutable part, and the columns of the table that holds it."""

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
    state: State = State.QUEUED
    attempt: int = 0
    fence: int = 0
    n: int = 1
    carry: JobState = field(default_factory=JobState)
    history: bytes | None = None
    clock: int | None = None
    due: int | None = None
    cause: str | None = None
    worker: str | None = None
    until: int | None = None
    term: int = 0
    call: str | None = None
    reaped: bool = False
    alone: bool = False
    ahead: bool = False
    suspending: bool = False
    cancelling: str | None = None
    reason: str | None = None
    finished: int | None = None
    purge_at: int | None = None
    result: bytes | None = None

    @property
    def queue(self) -> str:
        return self.name[0]

    @property
    def spec(self) -> JobSpec:
        return spec_of(
            self.name, self.id, self.asked, self.by, self.run, self.owner, self.key, self.uniq, self.options,
            self.extra, self.args,
        )  # fmt: skip

    def as_job(self) -> Job:
        carry = self.carry
        return Job(
            spec=self.spec,
            seq=self.seq,
            state=self.state,
            reason=None if self.reason is None else Reason(self.reason),
            blocked_on=self.cause,
            priority=self.priority,
            attempt=self.attempt,
            fence=self.fence,
            revision=self.n,
            lost=carry.lost,
            timeouts=carry.timeouts,
            created_at=moment(self.created),
            updated_at=last_time_in(self.history) or moment(self.created),
            run_at=moment(self.due) if self.due is not None and self.state is State.SCHEDULED else None,
            expires_at=_moment(self.expires),
            started_at=_moment(carry.started),
            finished_at=_moment(self.finished),
            worker=last_holder_in(self.history or b"") if self.state in FINAL else self.worker,
            leased_until=_moment(self.until),
            progress=carry.progress,
            message=carry.message,
            note=carry.note,
            cancelling=self.cancelling is not None,
            suspending=self.suspending,
            checkpoint=carry.checkpoint,
            result=self.result,
            failure=carry.failure,
        )

    def as_lease(self) -> Lease:
        assert self.worker is not None
        assert self.until is not None
        assert self.carry.started is not None
        return Lease(
            seq=self.seq,
            spec=self.spec,
            fence=self.fence,
            attempt=self.attempt,
            priority=self.priority,
            worker=self.worker,
            until=moment(self.until),
            lease_for=timedelta(microseconds=self.term),
            started_at=moment(self.carry.started),
            created_at=moment(self.created),
            lost=self.carry.lost,
            timeouts=self.carry.timeouts,
            checkpoint=self.carry.checkpoint,
            call=self.call,
            reaped=self.reaped,
            alone=self.alone,
            begun=not self.ahead,
        )

    def first_event(self) -> Event:
        """The event `submitted`. It is not stored in the history, because the immutable row contains all of it."""
        spec = self.spec
        due = first_due(spec, self.created, self.arrived)
        waits = State.QUEUED if spec.holder is None else State.BLOCKED
        state = waits if due is None else State.SCHEDULED
        note = SHORTENED_NOTE if self.extra is not None and _unpack_extra(self.extra).shortened else ""
        return submitted(spec, state, moment(self.created), None if due is None else moment(due[1]), note)

    def events(self) -> list[Event]:
        return whole(self.first_event(), self.history)


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


def joined(history: bytes | None, line: bytes) -> bytes:
    return line if history is None else history + b"\n" + line


def may_shorten(n: int) -> bool:
    return n >= FOLD_FROM and n % KEPT_UNFOLDED == 0


def shorten(first: Event, history: bytes) -> bytes:
    """A history with its older events folded; `first` is the event that is not stored with it."""
    return b"\n".join(encode(event) for event in shorten_history(whole(first, history))[1:])


def whole(first: Event, history: bytes | None) -> list[Event]:
    """All events. The history of an adopted job contains its first event, too."""
    later = decode_lines(history) if history else []
    return later if later and later[0].n == 1 else [first, *later]


Values = tuple[Any, ...]

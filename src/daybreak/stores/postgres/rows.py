"""Conversion between rows and the model: what is a column, and what is packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.model import DEFAULT_OPTIONS, Failure, JobSpec, Need, Options, State
from daybreak.core.rank import Rank
from daybreak.core.units import clean
from daybreak.stores.kernel.history import HistoryFormat
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.postgres import event_lines

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


@dataclass(slots=True, eq=False, kw_only=True)
class PostgresRow(Row):
    """One job in any state."""

    lines: ClassVar[HistoryFormat] = event_lines


# Looked up once: access to an enum member runs Python code each time.
_STATES = {state.value: state for state in State}
_NO_CARRY = JobState()


def row_of(values: Sequence[Any], name: LaneName) -> PostgresRow:
    """A row of the statement `load_jobs`."""
    (
        seq, id_, _, band, order, priority, asked, created, arrived, expires, by, run, owner, key, uniq, options, extra,
        args, state, attempt, fence, n, started, progress, carry, note, message, history, clock, due, worker, until,
        term, call, reaped, alone, suspending, cancelling, reason, finished, purge_at, result, cause, ahead,
    ) = values  # fmt: skip
    carried = _NO_CARRY if carry is None else _unpack_carry(carry)
    row = PostgresRow(
        seq=seq, id=id_, name=name, options=unpack_options(options), unique=uniq, priority=priority, created=created,
        arrived=arrived, read_spec=partial(spec_of, name, id_, asked, by, run, owner, key, uniq, options, extra, args),
        band=band, ord=order, expires=expires, state=_STATES[state], attempt=attempt, fence=fence, n=n,
        lost=carried.lost, timeouts=carried.timeouts, checkpoint=carried.checkpoint, failure=carried.failure,
        note=text_of(note), message=text_of(message), progress=progress, started=started, blocked_since=carried.since,
        history=history, clock=clock, due=due, cause=cause, worker=worker, until=until, term=term or 0, call=call,
        reaped=bool(reaped), alone=bool(alone), ahead=bool(ahead), suspending=bool(suspending),
        cancelling=None if cancelling is None else cancelling.decode(), reason=reason, finished=finished,
        purge_at=purge_at, result=result,
    )  # fmt: skip
    row.stored = row.place
    return row


class QueuedHead(NamedTuple):
    """The rank of a queued job and what it needs: a row of the statement `claim_lane`."""

    lane: int
    band: int
    ord: int
    seq: int
    priority: int
    expires: int | None
    attempt: int
    packed_needs: str | None
    packed_carry: bytes | None

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_needs(self.packed_needs)

    @property
    def blocked_since(self) -> int | None:
        return None if self.packed_carry is None else _unpack_carry(self.packed_carry).since

    @property
    def rank(self) -> Rank:
        return Rank(self.band, self.ord, self.seq)


def queued_row_of(head: QueuedHead, values: Sequence[Any], name: LaneName) -> PostgresRow:
    """A queued job: its head, and a row of the statement `lock_ready_free`."""
    (
        seq, attempt, fence, n, carry, history, id_, asked, created, by, run, owner, key, uniq, options, extra, args,
        arrived, started, progress, note, message,
    ) = values  # fmt: skip
    carried = _NO_CARRY if carry is None else _unpack_carry(carry)
    row = PostgresRow(
        seq=seq, id=id_, name=name, options=unpack_options(options), unique=uniq, priority=head.priority,
        created=created, arrived=arrived,
        read_spec=partial(spec_of, name, id_, asked, by, run, owner, key, uniq, options, extra, args),
        band=head.band, ord=head.ord, expires=head.expires, state=State.QUEUED, attempt=attempt, fence=fence, n=n,
        lost=carried.lost, timeouts=carried.timeouts, checkpoint=carried.checkpoint, failure=carried.failure,
        note=text_of(note), message=text_of(message), progress=progress, started=started, blocked_since=carried.since,
        history=history,
    )  # fmt: skip
    row.stored = row.place
    return row


def carry_of(row: Row) -> bytes | None:
    """What a job carries over, packed."""
    is_new = row.failure is None and row.checkpoint is None and row.blocked_since is None
    if is_new and not row.lost and not row.timeouts:
        return None
    return pack_carry(JobState(row.lost, row.timeouts, row.checkpoint, row.failure, row.blocked_since))


def text_of(packed: bytes | None) -> str:
    return packed.decode() if packed else ""


def text_bytes(text: str) -> bytes | None:
    return text.encode() if text else None

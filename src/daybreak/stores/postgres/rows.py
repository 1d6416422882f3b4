"""Conversion between rows and the model: what is a column, and what is packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.model import Failure, Need, State
from daybreak.core.rank import Rank
from daybreak.core.units import clean
from daybreak.stores.kernel.history import HistoryFormat
from daybreak.stores.kernel.packing import batch_of, or_null, pack, spec_of, unpack_options
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.postgres import event_lines


class JobState(Struct, omit_defaults=True):
    """What a job carries over from earlier attempts; NULL before the first. A claim changes none of it but `since`,
    the time since which the job has waited for a resource: a claim clears it."""

    lost: int = 0
    timeouts: int = 0
    checkpoint: bytes | None = None
    failure: Failure | None = None
    since: int | None = None
    detached: bool = False
    cached_from: str | None = None


_unpack_carry = msgspec.msgpack.Decoder(JobState).decode

# Jobs of one task need the same, so these caches stay small even for millions of rows.
_needs_known: dict[str, tuple[Need, ...]] = {}
_needs_packed: dict[tuple[Need, ...], str] = {}


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


def pack_carry(carry: JobState) -> bytes | None:
    return or_null(pack(carry))


def unpack_carry(packed: bytes | None) -> JobState:
    return JobState() if packed is None else _unpack_carry(packed)


def is_suspect(carry: JobState) -> bool:
    """Whether an attempt crashed or ran into its limit."""
    return carry.lost > 0 or carry.timeouts > 0


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
        term, call, reaped, alone, suspending, cancelling, reason, finished, purge_at, result, cause, ahead, group,
        elements, flight, entry,
    ) = values  # fmt: skip
    chosen = unpack_options(options)
    carried = _NO_CARRY if carry is None else _unpack_carry(carry)
    row = PostgresRow(
        seq=seq, id=id_, name=name, options=chosen, unique=uniq, priority=priority, created=created,
        arrived=arrived, batch=batch_of(extra),
        read_spec=partial(spec_of, name, id_, uniq, chosen, (asked, by, run, owner, key, extra, args)),
        band=band, ord=order, expires=expires, state=_STATES[state], attempt=attempt, fence=fence, n=n,
        lost=carried.lost, timeouts=carried.timeouts, checkpoint=carried.checkpoint, failure=carried.failure,
        note=text_of(note), message=text_of(message), progress=progress, started=started, blocked_since=carried.since,
        history=history, clock=clock, due=due, cause=cause, worker=worker, until=until, term=term or 0, call=call,
        group=group, elements=elements or 0, reaped=bool(reaped), alone=bool(alone), ahead=bool(ahead),
        detached=carried.detached,
        suspending=bool(suspending), cancelling=None if cancelling is None else cancelling.decode(), reason=reason,
        finished=finished, purge_at=purge_at, result=result, flight=flight, result_of=entry,
        cached_from=carried.cached_from,
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
    fence: int
    packed_needs: str | None
    packed_carry: bytes | None
    batch: str | None
    name: LaneName

    @property
    def is_suspect(self) -> bool:
        return self.packed_carry is not None and is_suspect(_unpack_carry(self.packed_carry))

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_needs(self.packed_needs)

    @property
    def blocked_since(self) -> int | None:
        return None if self.packed_carry is None else _unpack_carry(self.packed_carry).since

    @property
    def rank(self) -> Rank:
        return Rank(self.band, self.ord, self.seq)


class BlockedMate(NamedTuple):
    """A blocked job that a batch call may take along."""

    seq: int
    priority: int
    expires: int | None
    options: bytes | None
    packed_carry: bytes | None

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_options(self.options).resources

    @property
    def is_suspect(self) -> bool:
        return self.packed_carry is not None and is_suspect(_unpack_carry(self.packed_carry))


def queued_row_of(head: QueuedHead, values: Sequence[Any], name: LaneName) -> PostgresRow:
    """A queued job: its head, and a row of the statement `lock_ready_free`."""
    (
        seq, attempt, fence, n, carry, history, id_, asked, created, by, run, owner, key, uniq, options, extra, args,
        arrived, started, progress, note, message, flight,
    ) = values  # fmt: skip
    chosen = unpack_options(options)
    carried = _NO_CARRY if carry is None else _unpack_carry(carry)
    row = PostgresRow(
        seq=seq, id=id_, name=name, options=chosen, unique=uniq, priority=head.priority,
        created=created, arrived=arrived, batch=head.batch,
        read_spec=partial(spec_of, name, id_, uniq, chosen, (asked, by, run, owner, key, extra, args)),
        band=head.band, ord=head.ord, expires=head.expires, state=State.QUEUED, attempt=attempt, fence=fence, n=n,
        lost=carried.lost, timeouts=carried.timeouts, checkpoint=carried.checkpoint, failure=carried.failure,
        note=text_of(note), message=text_of(message), progress=progress, started=started, blocked_since=carried.since,
        history=history, flight=flight,
    )  # fmt: skip
    row.stored = row.place
    return row


def carry_of(row: Row) -> bytes | None:
    """What a job carries over, packed."""
    is_new = row.failure is None and row.checkpoint is None and row.blocked_since is None and not row.detached
    if is_new and not row.lost and not row.timeouts and row.cached_from is None:
        return None
    return pack_carry(
        JobState(
            row.lost, row.timeouts, row.checkpoint, row.failure, row.blocked_since, row.detached, row.cached_from
        )
    )  # fmt: skip


def text_of(packed: bytes | None) -> str:
    return packed.decode() if packed else ""


def text_bytes(text: str) -> bytes | None:
    return text.encode() if text else None

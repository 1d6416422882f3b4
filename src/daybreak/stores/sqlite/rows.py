"""Conversion between the rows of the kernel and those of the file: some fields are columns, others are packed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Failure, JobSpec, Need, Options, State
from daybreak.stores.kernel.packing import (
    batch_of,
    is_shortened,
    or_null,
    pack,
    pack_extra,
    pack_options,
    spec_of,
    unpack_options,
)
from daybreak.stores.kernel.row import LaneName, Place, Row

Values = tuple[Any, ...]
Execute = Callable[[str, Values], Any]


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
    detached: bool = False
    flight: str | None = None
    cached_from: str | None = None


unpack_state = msgspec.msgpack.Decoder(JobState).decode
_unpack_needs = msgspec.msgpack.Decoder(tuple[Need, ...]).decode

Counters = dict[str, tuple[int, int]]  # what happened -> how often, and the total time in microseconds
pack_totals = pack
unpack_totals = msgspec.msgpack.Decoder(Counters).decode

_STATES: Final = {state.value: state for state in State}
_QUEUED, _RUNNING = State.QUEUED, State.RUNNING


# -- packing -----------------------------------------------------------------------------------------------------------


def pack_needs(needs: tuple[Need, ...]) -> bytes | None:
    return pack(needs) if needs else None


@functools.lru_cache(maxsize=512)  # jobs of one task need the same
def unpack_needs(packed: bytes) -> tuple[Need, ...]:
    return _unpack_needs(packed)


def pack_state(row: Row) -> bytes | None:
    """What the job carries over. When it started is a column of a lease and of a final job."""
    has_column = row.until is not None or row.finished is not None
    started = None if has_column else row.started
    if not (row.lost or row.timeouts or row.note or row.message or row.detached or row.flight) and (
        row.checkpoint is None
        and row.failure is None
        and row.progress is None
        and row.blocked_since is None
        and started is None
    ):
        return None
    return or_null(
        pack(
            JobState(
                row.lost, row.timeouts, row.checkpoint, row.failure, row.note, started, row.progress, row.message,
                row.blocked_since, row.detached, row.flight, row.cached_from,
            )
        )
    )  # fmt: skip


def at_start(packed: bytes) -> tuple[int, int, bytes | None, bytes | None]:
    """What a job carries into its next attempt: how often it was lost and timed out, its checkpoint, and all packed."""
    state = unpack_state(packed)
    kept = JobState(state.lost, state.timeouts, state.checkpoint, state.failure, flight=state.flight)
    return state.lost, state.timeouts, state.checkpoint, or_null(pack(kept))


def is_suspect(packed: bytes) -> bool:
    """Whether an attempt crashed or ran into its limit."""
    state = unpack_state(packed)
    return state.lost > 0 or state.timeouts > 0


def with_report(packed: bytes | None, checkpoint: bytes | None, progress: float | None, message: str) -> bytes | None:
    """What a job carries over, with what a heartbeat reports; None leaves a value as it is."""
    state = JobState() if packed is None else unpack_state(packed)
    if checkpoint is not None:
        state.checkpoint = checkpoint
    if progress is not None:
        state.progress, state.message = progress, message
    return or_null(pack(state))


# -- writing -----------------------------------------------------------------------------------------------------------


def job_values(row: Row, lane: int) -> Values:
    """The immutable part of a new job, as `insert_job` takes it."""
    spec = row.spec
    return (
        row.seq, row.id, lane, row.band, row.ord, row.priority, spec.priority, row.created, row.arrived, row.expires,
        spec.by, spec.run, spec.owner, spec.key, spec.unique, pack_options(spec.options),
        pack_extra(spec, shortened=row.shortened), spec.args,
    )  # fmt: skip


def ready_values(row: Row, lane: int) -> Values:
    return (
        lane, row.band, row.ord, row.seq, row.attempt, row.fence, row.n, pack_state(row), row.history, row.batch
    )  # fmt: skip


def delayed_values(row: Row, _: int) -> Values:
    return (row.seq, row.clock, row.due, row.attempt, row.fence, row.n, pack_state(row), row.history)


def held_values(row: Row, lane: int) -> Values:
    return (
        row.seq, row.state.value, row.cause, lane, row.band, row.ord, row.clock, row.due, row.attempt, row.fence, row.n,
        pack_state(row), row.history, row.company_at(row.place),
    )  # fmt: skip


def lease_values(row: Row, lane: int) -> Values:
    return (
        row.seq, lane, row.priority, row.unique, row.attempt, row.fence, row.n, row.worker, row.until, row.term,
        row.started, row.call, row.reaped, row.suspending, row.cancelling, pack_state(row), row.history, row.alone,
        pack_needs(row.needs), row.ahead, row.group, row.elements,
    )  # fmt: skip


def done_values(row: Row, _: int) -> Values:
    return (
        row.seq, row.state.value, row.reason, row.attempt, row.fence, row.n, row.started, row.finished, row.purge_at,
        None if row.result_of is not None else row.result, pack_state(row), row.history, row.result_of,
    )  # fmt: skip


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_spec(
    execute: Execute,
    statement: str,
    seq: int,
    name: LaneName,
    id: str,  # noqa: A002
    unique: str | None,
    options: Options,
) -> JobSpec:
    return spec_of(name, id, unique, options, execute(statement, (seq,)).fetchone())


def queued_row(found: Values, name: LaneName) -> Row:
    """A queued job from a row of `claim_lane`, with its spec."""
    (band, order, seq, attempt, fence, n, packed, history, id_, _, priority, created, arrived, expires, unique, options,
     *columns) = found  # fmt: skip
    chosen = unpack_options(options)
    row = Row(
        seq=seq, id=id_, name=name, options=chosen, unique=unique, priority=priority, created=created, arrived=arrived,
        batch=batch_of(columns[5]), read_spec=partial(spec_of, name, id_, unique, chosen, columns), band=band,
        ord=order, expires=expires, shortened=is_shortened(columns[5]), attempt=attempt, fence=fence, n=n,
        history=history,
        stored=Place(_QUEUED, band, order, priority, expires, None, None, None),
    )  # fmt: skip
    if packed is not None:
        _set_state(row, packed)
    return row


def leased_row(found: Values, name: LaneName, execute: Execute, statement: str) -> Row:
    """A running job from a row of `load_leased`."""
    (seq, id_, _, band, order, priority, created, arrived, expires, unique, options, extra, attempt, fence, n, packed,
     history, worker, until, term, started, call, reaped, alone, ahead, suspending, cancelling, group,
     elements) = found  # fmt: skip
    chosen = unpack_options(options)
    row = Row(
        seq=seq, id=id_, name=name, options=chosen, unique=unique, priority=priority, created=created, arrived=arrived,
        batch=batch_of(extra), read_spec=partial(_read_spec, execute, statement, seq, name, id_, unique, chosen),
        band=band, ord=order, expires=expires, shortened=is_shortened(extra), state=_RUNNING, attempt=attempt,
        fence=fence, n=n, history=history, worker=worker, until=until, term=term, call=call, group=group,
        elements=elements, reaped=bool(reaped), alone=bool(alone), ahead=bool(ahead), suspending=bool(suspending),
        cancelling=cancelling,
        stored=Place(_RUNNING, band, order, priority, expires, None, None, None),
    )  # fmt: skip
    if packed is not None:
        _set_state(row, packed)
    row.started = started
    return row


def other_row(found: Values, name: LaneName, execute: Execute, statement: str) -> Row:
    """A job that is not running, from a row of `load_others`."""
    (seq, id_, _, band, order, priority, created, arrived, expires, unique, options, extra, attempt, fence, n, packed,
     history, state, clock, due, cause, reason, started, finished, purge_at, result,
     entry) = found  # fmt: skip
    assert attempt is not None, f"job {id_} is in no state"
    chosen, state = unpack_options(options), _STATES[state]
    row = Row(
        seq=seq, id=id_, name=name, options=chosen, unique=unique, priority=priority, created=created, arrived=arrived,
        batch=batch_of(extra), read_spec=partial(_read_spec, execute, statement, seq, name, id_, unique, chosen),
        band=band, ord=order, expires=expires, shortened=is_shortened(extra), state=state, attempt=attempt,
        fence=fence, n=n, history=history, clock=clock, due=due, cause=cause, reason=reason, finished=finished,
        purge_at=purge_at, result=result, result_of=entry,
        stored=Place(state, band, order, priority, expires, clock, due, cause),
    )  # fmt: skip
    if packed is not None:
        _set_state(row, packed)
    if finished is not None:
        row.started = started
    return row


def _set_state(row: Row, packed: bytes) -> None:
    state = unpack_state(packed)
    row.lost, row.timeouts, row.checkpoint, row.failure = state.lost, state.timeouts, state.checkpoint, state.failure
    row.note, row.started, row.progress, row.message = state.note, state.started, state.progress, state.message
    row.blocked_since, row.detached = state.blocked_since, state.detached
    row.flight, row.cached_from = state.flight, state.cached_from


def is_detached(packed: bytes | None) -> bool:
    """Whether a lease belongs to no worker any more."""
    return packed is not None and unpack_state(packed).detached


def seqs_parameter(seqs: Iterable[int]) -> str:
    """Sequence numbers as the JSON list that batch statements take."""
    return msgspec.json.encode(list(seqs)).decode()

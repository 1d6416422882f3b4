"""Conversion between stored bytes and the model: how jobs and leases are packed and unpacked."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from daybreak.core.events import Event, submitted
from daybreak.core.flights import flight_cause, room_of
from daybreak.core.model import DEFAULT_OPTIONS, FINAL, Failure, Job, JobSpec, Lease, State
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX
from daybreak.core.units import EPOCH, micros, moment, span
from daybreak.stores.kernel.packing import pack_options, unpack_options
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import (
    SHORT,
    last_holder,
    last_time,
    moment_or_none,
    read_short,
    unfold,
    unpack_event,
)

COMPRESS_ABOVE: Final = 4096
_CREATED: Final = struct.Struct("<d")
_SUBMITTED: Final = bytes((codes.KIND["submitted"],))
_HAS_OPTIONS: Final = 0xC1  # starts no msgpack value, so it marks a spec with its own options
RAW, COMPRESSED = b"\0", b"\1"  # the first byte of a stored value; the size of a compressed one follows
_SIZE: Final = struct.Struct("<I")
_COMPRESSED_AT: Final = 1 + _SIZE.size
_MAX_SIZE: Final = 2**32 - 1

_pack = msgspec.msgpack.Encoder().encode


_unpack_spec = msgspec.msgpack.Decoder(JobSpec).decode
_unpack_failure = msgspec.msgpack.Decoder(Failure).decode
_unpack_progress = msgspec.msgpack.Decoder(tuple[float, str]).decode


# -- values ------------------------------------------------------------------------------------------------------------


def pack_value(value: bytes) -> bytes:
    """A value as it is stored: marked, and compressed if it is large and that makes it smaller."""
    if len(value) > COMPRESS_ABOVE and len(compressed := zlib.compress(value, 1)) < len(value):
        return b"".join((COMPRESSED, _SIZE.pack(len(value)), compressed))
    return RAW + value


def pack_result(result: bytes) -> bytes:
    """A result as it is stored. One that refers to contents beside the jobs is marked as compressed, with the room that
    all of it takes, because a script does not look into results."""
    room = room_of(result)
    if room == len(result):
        return pack_value(result)
    return b"".join((COMPRESSED, _SIZE.pack(min(room, _MAX_SIZE)), zlib.compress(result, 1)))


def unpack_value(value: bytes) -> bytes:
    return zlib.decompress(value[_COMPRESSED_AT:]) if value[0] else value[1:]


def pack_failure(failure: Failure) -> bytes:
    return pack_value(_pack(failure))


def pack_progress(progress: float, message: str) -> bytes:
    return _pack((progress, message))


# -- specs -------------------------------------------------------------------------------------------------------------


def pack_spec(spec: JobSpec) -> bytes:
    """A packed spec. Its options are packed separately, so that they are decoded once for all jobs that share them."""
    options = pack_options(spec.options)
    if options is None:
        return pack_value(_pack(spec))
    plain = _pack(replace(spec, options=DEFAULT_OPTIONS))
    return pack_value(b"".join((bytes((_HAS_OPTIONS,)), SHORT.pack(len(options)), options, plain)))


def unpack_spec(packed: bytes, at: int = 0) -> JobSpec:
    body = zlib.decompress(packed[at + _COMPRESSED_AT :]) if packed[at] else packed[at + 1 :]
    if body[0] != _HAS_OPTIONS:
        return _unpack_spec(body)
    options, at = read_short(body, 1)
    spec = _unpack_spec(body[at:])
    force_setattr(spec, "options", unpack_options(options))
    return spec


# -- leases ------------------------------------------------------------------------------------------------------------

# state, reason, flags, marks, priority, clock, lane, attempt, fence, n, lost, timeouts, x, y, started
HEAD: Final = struct.Struct("<2B2H2BIIdIIIddd")
_MARKS: Final = 4  # where the low byte of the marks is
_FLAGS_HIGH: Final = 3  # where the high byte of the flags is
_GROUPED: Final = codes.GROUPED >> 8
NEEDED: Final = struct.Struct(
    "<dHI"
)  # blocked since, the index of the need it is blocked on (from 1), and the size of the needs
JOB: Final = struct.Struct("<ddd")  # created, keep_completed, keep_failed


def leases_of(worker: str, call: str | None, reply: Sequence[Any]) -> list[Lease]:
    """The leases in the reply to a claim or a reap: all for one worker, under one call."""
    seqs, heads, jobs, checkpoints, *rest = reply
    checkpoint_values = iter(checkpoints)
    groups = iter(rest[2] if len(rest) > 2 else ())  # only jobs of batch calls have one
    templates: dict[bytes, Lease] = {}  # most leases of one claim are equal but for a few fields
    created_times: dict[bytes, datetime] = {}
    leases = []
    for seq, head, job in zip(seqs, heads, jobs, strict=True):
        spec = unpack_spec(job, JOB.size)
        if (template := templates.get(head)) is None:
            template = templates[head] = _template(spec, head, worker, call)
        stamp = job[:8]
        if (created := created_times.get(stamp)) is None:
            created = created_times[stamp] = moment(int(_CREATED.unpack(stamp)[0]))
        lease = replace(template, seq=int(seq), spec=spec, created_at=created)
        if head[_MARKS] & codes.CHECKPOINT:
            force_setattr(lease, "checkpoint", unpack_value(next(checkpoint_values)))
        if head[_FLAGS_HIGH] & _GROUPED:
            force_setattr(lease, "group", int(next(groups)))
        leases.append(lease)
    return leases


def _template(spec: JobSpec, head: bytes, worker: str, call: str | None) -> Lease:
    """A lease to be copied for all jobs with an equal head: a copy is far faster than a new lease."""
    _, _, flags, _, priority, _, _, attempt, fence, _, lost, timeouts, until, term, started = HEAD.unpack(head)
    return Lease(
        seq=0, spec=spec, created_at=EPOCH, fence=int(fence), attempt=attempt, priority=priority, worker=worker,
        until=moment(int(until)), lease_for=timedelta(microseconds=term), started_at=moment(int(started)), lost=lost,
        timeouts=timeouts, call=call if flags & codes.CALLED else None, reaped=bool(flags & codes.REAPED),
        alone=bool(flags & codes.ALONE), begun=not flags & codes.AHEAD, detached=bool(flags & codes.DETACHED),
    )  # fmt: skip


# -- whole jobs --------------------------------------------------------------------------------------------------------


class StoredJob:
    """Everything that is stored of a job, in the order of whole.lua."""

    __slots__ = ("_history", "_parts", "created", "job", "spec")

    def __init__(self, parts: Sequence[Any]) -> None:
        seq, record, job, *self._parts = parts
        (self.created,) = _CREATED.unpack_from(job)
        self.spec = unpack_spec(job, JOB.size)
        _, at = read_short(record, HEAD.size)
        holder, at = read_short(record, at)
        head, lacking = HEAD.unpack_from(record), 0
        if head[3] & codes.NEEDS:
            _, lacking, size = NEEDED.unpack_from(record, at)
            at += NEEDED.size + size
        self._history = record[at:]
        self.job = self._job(int(seq), head, holder, lacking)

    def _job(self, seq: int, head: tuple[Any, ...], holder: bytes, lacking: int) -> Job:
        (code, reason, flags, marks, priority, _, _, attempt, fence, n, lost, timeouts, x, y, started) = head
        checkpoint, failure, note, progress, result, expires, source, group = self._parts
        state = codes.STATES[code]
        fraction, message = (None, "") if progress is None else _unpack_progress(progress)
        return Job(
            spec=self.spec,
            seq=seq,
            state=state,
            reason=codes.REASONS[reason],
            blocked_on=self._cause(marks, lacking) if state is State.BLOCKED else None,
            priority=priority,
            attempt=attempt,
            fence=int(fence),
            revision=n,
            lost=lost,
            timeouts=timeouts,
            created_at=moment(int(self.created)),
            updated_at=last_time(self._history) or moment(int(self.created)),
            run_at=moment(int(y)) if state is State.SCHEDULED else None,
            expires_at=None if expires is None else moment(int(expires)),
            started_at=moment_or_none(started),
            finished_at=moment(int(x)) if code >= codes.STATE[State.COMPLETED] else None,
            worker=self._holder(state, holder),
            group=None if group is None else int(group),
            leased_until=moment(int(x)) if state is State.RUNNING else None,
            progress=fraction,
            message=message,
            note="" if note is None else note.decode(),
            cancelling=bool(flags & codes.CANCELLING),
            suspending=bool(flags & codes.SUSPENDING),
            detached=bool(flags & codes.DETACHED),
            checkpoint=None if checkpoint is None else unpack_value(checkpoint),
            result=None if result is None else unpack_value(result),
            cached_from=source.decode() if source else None,
            failure=None if failure is None else _unpack_failure(unpack_value(failure)),
        )

    def _holder(self, state: State, holder: bytes) -> str | None:
        """The worker that runs the job or, once it has ended, ran it last."""
        if state in FINAL:
            return last_holder(self._history)
        return read_short(holder, 0)[0].decode() if state is State.RUNNING else None

    def _cause(self, marks: int, lacking: int) -> str:
        if marks & codes.FOLLOWS:
            return flight_cause(self.spec.flight or "")
        needs = self.spec.options.resources
        if lacking > codes.RETRIES:
            return RETRY_CAUSE_PREFIX + needs[lacking - codes.RETRIES - 1].resource
        return needs[lacking - 1].resource

    def history(self) -> list[Event]:
        """All events. The first is stored only if it contains more than the spec."""
        spec, at = self.spec, 0
        if self._history[:1] == _SUBMITTED:
            first, at = unpack_event(spec.id, self._history, 0)
        else:
            first = self._submitted_event()
        events = [first]
        while at < len(self._history):
            event, at = unpack_event(spec.id, self._history, at)
            events.append(unfold(first, event) if event.kind == "folded" else event)
        return events

    def _submitted_event(self) -> Event:
        spec = self.spec
        state, run_at = State.QUEUED if spec.holder is None else State.BLOCKED, None
        if spec.run_at is not None:
            run_at = spec.run_at if micros(spec.run_at) > self.created else None
        elif spec.delay is not None:
            run_at = moment(int(self.created) + span(spec.delay)) if spec.delay else None
        if run_at is not None:
            state, run_at = State.SCHEDULED, moment(micros(run_at))
        return submitted(spec, state, moment(int(self.created)), run_at)

"""Between what is kept and the model: how jobs and leases are packed and taken apart."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from daybreak.core.events import Event, submitted
from daybreak.core.model import DEFAULT_OPTIONS, FINAL, Failure, Job, JobSpec, Lease, Options, State
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX
from daybreak.core.units import EPOCH, micros, moment, span
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import SHORT, last_holder, moment_or_none, short, unfold, unpack_event

LARGE: Final = 4096
_CREATED: Final = struct.Struct("<d")
_SUBMITTED: Final = bytes((codes.KIND["submitted"],))
_SPECIAL: Final = 0xC1  # begins no value of msgpack: here are options of its own
PLAIN, SQUEEZED = b"\0", b"\1"  # the first byte of a value

_pack = msgspec.msgpack.Encoder().encode


_unpack_spec = msgspec.msgpack.Decoder(JobSpec).decode
_unpack_options = msgspec.msgpack.Decoder(Options).decode
_unpack_failure = msgspec.msgpack.Decoder(Failure).decode
_unpack_progress = msgspec.msgpack.Decoder(tuple[float, str]).decode


# -- values ------------------------------------------------------------------------------------------------------------


def squeeze(value: bytes) -> bytes:
    """A value as it is kept: marked, and compressed where it is large and that helps."""
    if len(value) > LARGE and len(small := zlib.compress(value, 1)) < len(value):
        return SQUEEZED + small
    return PLAIN + value


def unsqueeze(value: bytes) -> bytes:
    return zlib.decompress(value[1:]) if value[0] else value[1:]


def pack_failure(failure: Failure) -> bytes:
    return squeeze(_pack(failure))


def pack_progress(progress: float, message: str) -> bytes:
    return _pack((progress, message))


# -- what was submitted ------------------------------------------------------------------------------------------------

# Jobs of one task share their options, so a handful of values serves millions of jobs.
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
    packed = _pack(options)
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


def pack_spec(spec: JobSpec) -> bytes:
    """What was submitted; its options beside it, so that they are taken apart once for all jobs that share them."""
    options = pack_options(spec.options)
    if options is None:
        return squeeze(_pack(spec))
    plain = _pack(replace(spec, options=DEFAULT_OPTIONS))
    return squeeze(b"".join((bytes((_SPECIAL,)), SHORT.pack(len(options)), options, plain)))


def unpack_spec(packed: bytes, at: int = 0) -> JobSpec:
    body = zlib.decompress(packed[at + 1 :]) if packed[at] else packed[at + 1 :]
    if body[0] != _SPECIAL:
        return _unpack_spec(body)
    options, at = short(body, 1)
    spec = _unpack_spec(body[at:])
    force_setattr(spec, "options", unpack_options(options))
    return spec


# -- leases ------------------------------------------------------------------------------------------------------------

# state, reason, flags, marks, priority, clock, lane, attempt, fence, n, lost, timeouts, x, y, started
HEAD: Final = struct.Struct("<6BIIdIIIddd")
NEEDED: Final = struct.Struct("<dHI")  # since when it was blocked, on which of its needs (from 1), and their size
JOB: Final = struct.Struct("<ddd")  # created, how long it is kept when completed, and when failed


def leases_of(worker: str, call: str | None, reply: Sequence[Any]) -> list[Lease]:
    """The leases that a claim or a reap gave, all to one worker under one call."""
    seqs, heads, jobs, checkpoints, *_ = reply
    points = iter(checkpoints)
    looks: dict[bytes, Lease] = {}  # those that were claimed together mostly look alike
    born: dict[bytes, datetime] = {}
    leases = []
    for seq, head, job in zip(seqs, heads, jobs, strict=True):
        spec = unpack_spec(job, JOB.size)
        if (look := looks.get(head)) is None:
            look = looks[head] = _look(spec, head, worker, call)
        stamp = job[:8]
        if (created := born.get(stamp)) is None:
            created = born[stamp] = moment(int(_CREATED.unpack(stamp)[0]))
        lease = replace(look, seq=int(seq), spec=spec, created_at=created)
        if head[3] & codes.CHECKPOINT:
            force_setattr(lease, "checkpoint", unsqueeze(next(points)))
        leases.append(lease)
    return leases


def _look(spec: JobSpec, head: bytes, worker: str, call: str | None) -> Lease:
    """A lease as those of one look are, to be made into each of them: that is far faster than to make each anew."""
    _, _, flags, _, priority, _, _, attempt, fence, _, lost, timeouts, until, term, started = HEAD.unpack(head)
    return Lease(
        seq=0, spec=spec, created_at=EPOCH, fence=int(fence), attempt=attempt, priority=priority, worker=worker,
        until=moment(int(until)), lease_for=timedelta(microseconds=term), started_at=moment(int(started)), lost=lost,
        timeouts=timeouts, call=call if flags & codes.CALLED else None, reaped=bool(flags & codes.REAPED),
        alone=bool(flags & codes.ALONE), begun=not flags & codes.AHEAD,
    )  # fmt: skip


# -- whole jobs --------------------------------------------------------------------------------------------------------


class Whole:
    """All that is kept of a job, as whole.lua gives it."""

    __slots__ = ("_history", "_parts", "created", "job", "spec")

    def __init__(self, parts: Sequence[Any]) -> None:
        seq, record, job, *self._parts = parts
        (self.created,) = _CREATED.unpack_from(job)
        self.spec = unpack_spec(job, JOB.size)
        _, at = short(record, HEAD.size)
        holder, at = short(record, at)
        head, lacks = HEAD.unpack_from(record), 0
        if head[3] & codes.NEEDS:
            _, lacks, size = NEEDED.unpack_from(record, at)
            at += NEEDED.size + size
        self._history = record[at:]
        self.job = self._job(int(seq), head, holder, lacks)

    def _job(self, seq: int, head: tuple[Any, ...], holder: bytes, lacks: int) -> Job:
        (code, reason, flags, _, priority, _, _, attempt, fence, n, lost, timeouts, x, y, started) = head
        checkpoint, failure, note, progress, result, expires = self._parts
        state = codes.STATES[code]
        done, message = (None, "") if progress is None else _unpack_progress(progress)
        return Job(
            spec=self.spec,
            seq=seq,
            state=state,
            reason=codes.REASONS[reason],
            blocked_on=self._cause(lacks) if state is State.BLOCKED else None,
            priority=priority,
            attempt=attempt,
            fence=int(fence),
            revision=n,
            lost=lost,
            timeouts=timeouts,
            created_at=moment(int(self.created)),
            run_at=moment(int(y)) if state is State.SCHEDULED else None,
            expires_at=None if expires is None else moment(int(expires)),
            started_at=moment_or_none(started),
            finished_at=moment(int(x)) if code >= codes.STATE[State.COMPLETED] else None,
            worker=self._holder(state, holder),
            leased_until=moment(int(x)) if state is State.RUNNING else None,
            progress=done,
            message=message,
            note="" if note is None else note.decode(),
            cancelling=bool(flags & codes.CANCELLING),
            suspending=bool(flags & codes.SUSPENDING),
            checkpoint=None if checkpoint is None else unsqueeze(checkpoint),
            result=None if result is None else unsqueeze(result),
            failure=None if failure is None else _unpack_failure(unsqueeze(failure)),
        )

    def _holder(self, state: State, holder: bytes) -> str | None:
        """Who runs it, or, once it has ended, who ran it last."""
        if state in FINAL:
            return last_holder(self._history)
        return short(holder, 0)[0].decode() if state is State.RUNNING else None

    def _cause(self, lacks: int) -> str:
        needs = self.spec.options.resources
        if lacks > codes.RETRIES:
            return RETRY_CAUSE_PREFIX + needs[lacks - codes.RETRIES - 1].resource
        return needs[lacks - 1].resource

    def history(self) -> list[Event]:
        """All its events. The first is stored only where it tells more than what was submitted."""
        spec, at = self.spec, 0
        if self._history[:1] == _SUBMITTED:
            first, at = unpack_event(spec.id, self._history, 0)
        else:
            first = self._submitted()
        told = [first]
        while at < len(self._history):
            event, at = unpack_event(spec.id, self._history, at)
            told.append(unfold(first, event) if event.kind == "folded" else event)
        return told

    def _submitted(self) -> Event:
        spec = self.spec
        state, run_at = State.QUEUED if spec.holder is None else State.BLOCKED, None
        if spec.run_at is not None:
            run_at = spec.run_at if micros(spec.run_at) > self.created else None
        elif spec.delay is not None:
            run_at = moment(int(self.created) + span(spec.delay)) if spec.delay else None
        if run_at is not None:
            state, run_at = State.SCHEDULED, moment(micros(run_at))
        return submitted(spec, state, moment(int(self.created)), run_at)

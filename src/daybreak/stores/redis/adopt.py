"""Moves jobs between stores: the reply of pack.lua as jobs, and jobs of another store as arguments of adopt.lua."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from daybreak.core.model import State
from daybreak.core.units import micros, moment
from daybreak.store.protocol import Moved
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import pack_event, sized
from daybreak.stores.redis.gauges import pack_needs
from daybreak.stores.redis.rows import HEAD, StoredJob, pack_failure, pack_progress, pack_result, pack_spec, pack_value
from daybreak.stores.redis.specs import (
    Args,
    check_priority,
    micros_or_none,
    pack_batch,
    pack_flight,
    pack_ties,
    task_of,
)

_STATE: Final = struct.Struct("<3BIIII8d")
WALL: Final = 2  # the clock of a delay, as in prelude.lua


def to_moved(reply: Sequence[Any], offset: int) -> Moved:
    """A job from pack.lua with wall times: the steady time of this store means nothing to another."""
    parts, keys, holds_name = reply
    stored = StoredJob(parts)
    job, (_, _, _, _, _, clock, *_, due, _) = stored.job, HEAD.unpack_from(parts[1])
    if job.expires_at is not None and offset:
        job = replace(job, expires_at=moment(micros(job.expires_at) + offset))
    if job.state in (State.SCHEDULED, State.SUSPENDED) and clock:
        job = replace(job, run_at=moment(int(due) if clock == WALL else int(due) + offset))
    names = [name.decode() for name in keys]
    return Moved(job, stored.history(), dict(zip(names[::2], names[1::2], strict=True)), bool(holds_name))


def adopt(moved: Sequence[Moved], by: str) -> Args:
    sized(by.encode())
    args: Args = [by, len(moved)]
    for one in moved:
        _add(args, one)
    return args


def _add(args: Args, moved: Moved) -> None:
    job, spec = moved.job, moved.job.spec
    check_priority(job.priority)
    for name in (spec.id, spec.queue, *moved.keys):
        sized(name.encode())
    args += (
        spec.queue, task_of(spec.task, spec.version), spec.id, pack_spec(spec), pack_ties(spec),
        pack_needs(spec), pack_batch(spec),
        b"".join(pack_event(event) for event in moved.history[_stored_from(moved) :]),
        _STATE.pack(
            codes.STATE[job.state], codes.REASON[job.reason], job.priority, job.attempt, job.revision, job.lost,
            job.timeouts, job.fence, micros(job.created_at), _at(job.run_at), _at(job.expires_at), _at(job.started_at),
            _at(job.finished_at), micros_or_none(spec.options.keep_completed), micros_or_none(spec.options.keep_failed),
        ),
        b"" if job.checkpoint is None else pack_value(job.checkpoint),
        b"" if job.failure is None else pack_failure(job.failure),
        job.note,
        b"" if job.progress is None else pack_progress(job.progress, job.message),
        b"" if job.result is None else pack_result(job.result),
        pack_flight(spec),
        job.cached_from or "",
        int(moved.holds_name),
        len(moved.keys),
    )  # fmt: skip
    for key in moved.keys.items():
        args += key


def _stored_from(moved: Moved) -> int:
    """The index of the first event to store: the very first is stored only if it contains more than the spec."""
    return 0 if moved.history and moved.history[0].note else 1


def _at(value: datetime | None) -> int:
    return codes.NONE if value is None else micros(value)

"""New jobs as arguments of a script. What jobs of one kind have in common is sent once."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.flights import flight_of
from daybreak.core.model import JobSpec
from daybreak.core.units import micros, span
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import SHORT, Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_needs
from daybreak.stores.redis.rows import pack_spec

_pack = msgspec.msgpack.Encoder().encode

Arg = bytes | str | int
Args = list[Arg]

LOWEST_PRIORITY: Final = 10
_KIND: Final = struct.Struct("<4B4d")
_KEPT: Final = struct.Struct("<2d")
_TIES: Final = struct.Struct("<B")


def task_of(task: str, version: int) -> str:
    return f"{task}\0{version}"


def kind_of(spec: JobSpec) -> tuple[object, ...]:
    """The fields that jobs of one kind have in common."""
    has_ties = spec.key is not None or spec.unique is not None or spec.run is not None or spec.owner is not None
    return (
        spec.queue, spec.task, spec.version, spec.priority, spec.by, id(spec.options), spec.delay,
        spec.run_at, spec.holder, spec.hold_for, spec.run, spec.owner, spec.batch, spec.flight is not None,
        has_ties and spec.on_conflict,
    )  # fmt: skip


def add_specs(args: Args, specs: Iterable[JobSpec]) -> None:
    """Add the kinds of jobs, then the jobs in runs of one kind."""
    kinds: dict[tuple[object, ...], int] = {}
    packed_kinds: Args = []
    items: Args = []
    runs = size = at = before = 0
    for spec in specs:
        key = kind_of(spec)
        if (number := kinds.get(key)) is None:
            number = kinds[key] = len(kinds) + 1
            _add_kind(packed_kinds, spec, codes.ON_CONFLICT[spec.on_conflict] if key[-1] else 0)
        if number != before:
            if runs:
                items[at] = size
            runs, size, before = runs + 1, 0, number
            at = len(items) + 1
            items += (number, 0)
        size += 1
        sized(spec.id.encode())
        items.append(spec.id)
        items.append(pack_spec(spec))
        if key[-1]:
            items.append(pack_ties(spec))
        if key[-2] and (flight := pack_flight(spec)):
            items.append(flight)
    if runs:
        items[at] = size
    args.append(len(kinds))
    args += packed_kinds
    args.append(runs)
    args += items


def _add_kind(args: Args, spec: JobSpec, conflict: int) -> None:
    options = spec.options
    check_priority(spec.priority)
    sized(spec.queue.encode())
    clock, due = 0, 0
    if spec.run_at is not None:
        clock, due = codes.WALL, micros(spec.run_at)
    elif spec.delay is not None:
        clock, due = codes.STEADY, span(spec.delay)
    args += (
        spec.queue,
        task_of(spec.task, spec.version),
        pack_end(None, None, spec.by, pack_tail(_names(spec))),
        pack_needs(spec),
        pack_batch(spec),
        _KIND.pack(
            spec.priority, conflict, flight_of(spec) is not None, clock, due, micros_or_none(options.expires_in),
            micros_or_none(options.keep_completed), micros_or_none(options.keep_failed),
        ),
    )  # fmt: skip


def _names(spec: JobSpec) -> Tail:
    return Tail(task=spec.task, queue=spec.queue, run=spec.run, owner=spec.owner)


def check_priority(priority: int) -> None:
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise BadInput(f"{priority} is not a priority: use an integer from 0 to 10")


def micros_or_none(duration: timedelta | None) -> int:
    return codes.NONE if duration is None else span(duration)


def pack_batch(spec: JobSpec) -> str:
    """The batch key of a job, after a character that says that it has one."""
    return "" if spec.batch is None else f"={spec.batch}"


def pack_flight(spec: JobSpec) -> bytes:
    """The flight of a job and how its result is kept, see flight.lua; empty if its result is not kept."""
    flight, caching = flight_of(spec), spec.options.cache
    if flight is None or caching is None:
        return b""
    packed = [_KEPT.pack(micros_or_none(caching.ttl), codes.NONE if caching.size is None else caching.size)]
    for text in (flight, spec.by):
        name = text.encode()
        packed += (SHORT.pack(sized(name)), name)
    return b"".join((*packed, _pack(spec.flight_parts)))


def pack_ties(spec: JobSpec) -> bytes:
    names = (spec.key, spec.digest, spec.unique, spec.run, spec.owner, spec.code)
    flags = (spec.key is not None) + 2 * (spec.unique is not None) + 4 * (spec.run is not None)
    flags += 8 * (spec.owner is not None) + 16 * (spec.unique_while == "waiting")
    packed = [_TIES.pack(flags)]
    for text in names:
        name = (text or "").encode()
        packed += (SHORT.pack(sized(name)), name)
    return b"".join(packed)

"""New jobs as the arguments of a script: what jobs of one kind have in common is said once."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from daybreak.core.errors import BadInput
from daybreak.core.model import JobSpec
from daybreak.core.units import micros, span
from daybreak.stores.redis import codes
from daybreak.stores.redis.event_codec import SHORT, Tail, pack_end, pack_tail, sized
from daybreak.stores.redis.gauges import pack_needs
from daybreak.stores.redis.rows import pack_spec

Arg = bytes | str | int
Args = list[Arg]

LEAST_URGENT: Final = 10
_CLASS: Final = struct.Struct("<3B5d")
_TIES: Final = struct.Struct("<B")


def task_of(task: str, version: int) -> str:
    return f"{task}\0{version}"


def class_of(spec: JobSpec) -> tuple[object, ...]:
    """What jobs of one kind have in common."""
    tied = spec.key is not None or spec.unique is not None or spec.run is not None or spec.owner is not None
    return (
        spec.queue, spec.task, spec.version, spec.priority, spec.by, id(spec.options), spec.fence, spec.delay,
        spec.run_at, spec.holder, spec.hold_for, spec.run, spec.owner, tied and spec.on_conflict,
    )  # fmt: skip


def add_specs(args: Args, specs: Iterable[JobSpec]) -> None:
    """The kinds of jobs, then the jobs in runs of one kind."""
    classes: dict[tuple[object, ...], int] = {}
    said_classes: Args = []
    items: Args = []
    runs = size = at = before = 0
    for spec in specs:
        key = class_of(spec)
        if (number := classes.get(key)) is None:
            number = classes[key] = len(classes) + 1
            _add_class(said_classes, spec, codes.ON_CONFLICT[spec.on_conflict] if key[-1] else 0)
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
    if runs:
        items[at] = size
    args.append(len(classes))
    args += said_classes
    args.append(runs)
    args += items


def _add_class(args: Args, spec: JobSpec, conflict: int) -> None:
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
        pack_end(spec.fence or None, None, spec.by, pack_tail(_names(spec))),
        pack_needs(spec),
        _CLASS.pack(
            spec.priority, conflict, clock, due, kept(options.expires_in), spec.fence, kept(options.keep_completed),
            kept(options.keep_failed),
        ),
    )  # fmt: skip


def _names(spec: JobSpec) -> Tail:
    return Tail(task=spec.task, queue=spec.queue, run=spec.run, owner=spec.owner)


def check_priority(priority: int) -> None:
    if not 0 <= priority <= LEAST_URGENT:
        raise BadInput(f"{priority} is no priority: it is an integer from 0 to 10")


def kept(duration: timedelta | None) -> int:
    return codes.NONE if duration is None else span(duration)


def pack_ties(spec: JobSpec) -> bytes:
    names = (spec.key, spec.digest, spec.unique, spec.run, spec.owner, spec.code)
    flags = (spec.key is not None) + 2 * (spec.unique is not None) + 4 * (spec.run is not None)
    flags += 8 * (spec.owner is not None) + 16 * (spec.unique_while == "waiting")
    packed = [_TIES.pack(flags)]
    for text in names:
        name = (text or "").encode()
        packed += (SHORT.pack(sized(name)), name)
    return b"".join(packed)

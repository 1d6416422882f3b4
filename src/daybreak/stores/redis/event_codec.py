"""How events are packed in a job's history and in the feed. The client packs what it knows, the script adds the
times."""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.errors import TooLarge
from daybreak.core.events import Event, Folded, fold
from daybreak.core.units import micros, moment
from daybreak.stores.redis import codes

MAX_NAME_SIZE: Final = 16_384
SHORT: Final = struct.Struct("<H")
_LONG: Final = struct.Struct("<I")
_pack = msgspec.msgpack.Encoder().encode
_STARTED: Final = codes.KIND["started"]
_DETACHED: Final = codes.KIND["detached"]


# -- names and times ---------------------------------------------------------------------------------------------------


def sized(name: bytes) -> int:
    """The size of a name, which is limited so that three names fit into 64 KiB."""
    if len(name) > MAX_NAME_SIZE:
        raise TooLarge("a name, id or key is longer than 16 KiB: use a shorter one")
    return len(name)


def read_short(packed: bytes, at: int) -> tuple[bytes, int]:
    (size,) = SHORT.unpack_from(packed, at)
    return packed[at + 2 : at + 2 + size], at + 2 + size


def unpack_names(packed: bytes) -> list[str]:
    names, at = [], 0
    while at < len(packed):
        name, at = read_short(packed, at)
        names.append(name.decode())
    return names


def moment_or_none(value: float) -> datetime | None:
    return None if value == codes.NONE else moment(int(value))


# -- events ------------------------------------------------------------------------------------------------------------

EVENT: Final = struct.Struct("<4BIdddI")
EVENT_START: Final = struct.Struct("<4B")  # kind, state, reason, priority
EVENT_END: Final = struct.Struct("<dI")  # fence, attempt; then by and the tail
ROW: Final = struct.Struct("<dI")
_TIMES: Final = struct.Struct("<Idd")  # n, at, run_at


class Tail(Struct, omit_defaults=True):
    """Fields that few events have."""

    task: str | None = None
    queue: str | None = None
    progress: float | None = None
    note: str = ""
    error: str = ""
    run: str | None = None
    owner: str | None = None
    replaced_by: str | None = None


_unpack_tail = msgspec.msgpack.Decoder(Tail).decode


def pack_tail(tail: Tail) -> bytes:
    packed = _pack(tail)
    return b"" if packed == b"\x80" else packed


def pack_end(fence: int | None, attempt: int | None, by: str, tail: bytes = b"") -> bytes:
    """The part of an event that the client knows beforehand: everything after its times."""
    name = by.encode()
    return b"".join((
        EVENT_END.pack(codes.NONE if fence is None else fence, codes.NO_ATTEMPT if attempt is None else attempt),
        SHORT.pack(sized(name)), name, _LONG.pack(len(tail)), tail,
    ))  # fmt: skip


def pack_event(event: Event) -> bytes:
    """Pack a complete event, of a job that comes from another store."""
    tail = Tail(
        event.task, event.queue, event.progress, event.note, event.error, event.run, event.owner, event.replaced_by
    )
    if event.kind == "folded":  # its note follows from its number
        tail = _NO_TAIL
    head = EVENT_START.pack(
        codes.KIND[event.kind], codes.NO_STATE if event.state is None else codes.STATE[event.state],
        codes.REASON[event.reason], codes.NO_PRIORITY if event.priority is None else event.priority,
    )  # fmt: skip
    due = event.run_at if event.deadline is None else event.deadline  # no event has both
    times = _TIMES.pack(event.n, micros(event.at), codes.NONE if due is None else micros(due))
    return head + times + pack_end(event.fence, event.attempt, event.by, pack_tail(tail))


def unpack_event(job: str, packed: bytes, at: int) -> tuple[Event, int]:
    kind, state, reason, priority, n, event_at, due, fence, attempt = EVENT.unpack_from(packed, at)
    by, at = read_short(packed, at + EVENT.size)
    (size,) = _LONG.unpack_from(packed, at)
    at += 4 + size
    tail = _unpack_tail(packed[at - size : at]) if size else _NO_TAIL
    event = Event(
        n=n, kind=codes.KINDS[kind], job=job, at=moment(int(event_at)), by=by.decode(),
        state=None if state == codes.NO_STATE else codes.STATES[state], reason=codes.REASONS[reason],
        priority=None if priority == codes.NO_PRIORITY else priority,
        attempt=None if attempt == codes.NO_ATTEMPT else attempt,
        fence=None if fence == codes.NONE else int(fence),
        run_at=None if kind == _DETACHED else moment_or_none(due),
        deadline=moment_or_none(due) if kind == _DETACHED else None,
        task=tail.task, queue=tail.queue, progress=tail.progress, note=tail.note, error=tail.error, run=tail.run,
        owner=tail.owner, replaced_by=tail.replaced_by,
    )  # fmt: skip
    return event, at


_NO_TAIL: Final = Tail()


def last_holder(packed: bytes) -> str | None:
    """The worker of the latest attempt in a packed history; None if the job was never started."""
    at, found = 0, None
    while at < len(packed):
        kind = packed[at]
        by, at = read_short(packed, at + EVENT.size)
        (size,) = _LONG.unpack_from(packed, at)
        at += 4 + size
        if kind == _STARTED:
            found = by
    return None if found is None else found.decode()


def last_time(packed: bytes) -> datetime | None:
    """The time of the latest event in a packed history; None if it is empty."""
    at, last = 0, -1
    while at < len(packed):
        last = at
        _, at = read_short(packed, at + EVENT.size)
        (size,) = _LONG.unpack_from(packed, at)
        at += 4 + size
    return None if last < 0 else moment(int(EVENT.unpack_from(packed, last)[5]))


def unpack_row(row: bytes) -> list[Event]:
    """The events of one row of the feed."""
    at, events = ROW.size, []
    while at < len(row):
        job, at = read_short(row, at)
        event, at = unpack_event(job.decode(), row, at)
        events.append(event)
    return events


def unfold(first: Event, event: Event) -> Event:
    """Restore a folded event. Fields that no folded event changed have the value of the first event."""
    start: Folded = fold([first])
    return replace(
        event,
        state=event.state or start.state,
        priority=start.priority if event.priority is None else event.priority,
        attempt=event.attempt or 0,
        fence=start.fence if event.fence is None else event.fence,
        note=f"{event.n - 1} events in one",
    )

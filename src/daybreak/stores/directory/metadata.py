"""The metadata file of a job: what people and other programs read, and under `daybreak` all that the store needs.

Only the state may be changed from outside, by renaming the files; the other keys are for reading."""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.metadata import decode_meta
from daybreak.core.units import moment
from daybreak.stores.directory.entry import Entry
from daybreak.stores.directory.layout import Layout


class Ours(Struct, frozen=True, kw_only=True):
    """What only this store reads. `number` is the operation that wrote it. `raw` says whether the data file holds an
    item's raw data; `crc` is the checksum of that file."""

    number: int
    raw: bool = False
    crc: int = 0
    entry: Entry


class Metadata(Struct, frozen=True, kw_only=True):
    id: str
    status: str
    priority: int
    created_at: datetime
    updated_at: datetime
    attempts: int
    max_attempts: int
    last_error: str | None
    custom: dict[str, Any]
    daybreak: Ours


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Metadata)


def encoded(entry: Entry, layout: Layout, number: int, data: bytes, *, is_raw: bool) -> bytes:
    """The content of a job's metadata file."""
    spec = entry.spec
    stripped = replace(entry, spec=replace(spec, args=b""))
    return _encoder.encode(
        Metadata(
            id=spec.id,
            status=layout.words[entry.state],
            priority=entry.priority,
            created_at=moment(entry.created),
            updated_at=entry.history[-1].at if entry.history else moment(entry.created),
            attempts=entry.attempt,
            max_attempts=spec.options.retry.attempts,
            last_error=_last_error(entry),
            custom=decode_meta(spec.meta),
            daybreak=Ours(number=number, raw=is_raw, crc=zlib.crc32(data), entry=stripped),
        )
    )


def _last_error(entry: Entry) -> str | None:
    """The error with the name of its class, if it has one: an error that was told as text stands as it was told."""
    failure = entry.failure
    if failure is None:
        return entry.note or None
    return str(failure) if failure.kinds or not failure.message else failure.message


def decoded(content: bytes) -> Metadata | dict[str, Any]:
    """The metadata of this store, or the keys of another program. Raises msgspec.DecodeError if it is neither."""
    try:
        return _decoder.decode(content)
    except msgspec.ValidationError:
        found = msgspec.json.decode(content, type=dict[str, Any])
        if "daybreak" in found:
            raise
        return found

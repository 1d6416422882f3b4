"""How stores pack the parts of a job that they only keep: options, and the fields of a spec that few jobs have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from daybreak.core.model import DEFAULT_OPTIONS, JobSpec, Options, has_links
from daybreak.stores.kernel.row import LaneName


class SpecExtras(Struct, omit_defaults=True):
    """Fields that few jobs have; NULL for most. All are from the spec, except `shortened`: the wait limit was cut."""

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
    flight_parts: dict[str, str] = {}
    after: tuple[str, ...] = ()
    deadline: datetime | None = None
    holder: str | None = None
    hold_for: timedelta = timedelta(seconds=7)
    trace: str | None = None
    shortened: bool = False


HOLD_FOR: Final = JobSpec(id="", task="").hold_for
OF_SPEC: Final = tuple(name for name in SpecExtras.__struct_fields__ if name != "shortened")

pack = msgspec.msgpack.Encoder().encode
unpack_extra = msgspec.msgpack.Decoder(SpecExtras).decode
_unpack_options = msgspec.msgpack.Decoder(Options).decode
_EMPTY: Final = pack({})
_SHORTENED: Final = b"shortened"
_BATCH: Final = b"\xa5batch"  # the packed name of the field

# Jobs of one task share their options, so these caches stay small even for millions of rows.
_options_known: dict[bytes, Options] = {}
_options_packed: dict[int, tuple[Options, bytes | None]] = {}


def pack_options(options: Options) -> bytes | None:
    """Options as bytes; None are the default ones."""
    if options is DEFAULT_OPTIONS:
        return None
    known = _options_packed.get(id(options))
    if known is not None and known[0] is options:
        return known[1]
    if len(_options_packed) > 1000:
        _options_packed.clear()
    packed = or_null(pack(options))
    _options_packed[id(options)] = (options, packed)
    return packed


def unpack_options(packed: bytes | None) -> Options:
    """The options that were packed. Equal bytes give the same instance."""
    if packed is None:
        return DEFAULT_OPTIONS
    if (known := _options_known.get(packed)) is None:
        if len(_options_known) > 1000:
            _options_known.clear()
        known = _options_known[packed] = _unpack_options(packed)
    return known


def pack_extra(spec: JobSpec, *, shortened: bool = False) -> bytes | None:
    """What a spec has beyond the columns of a store; None for most."""
    if (
        spec.key is None
        and spec.delay is None
        and spec.run_at is None
        and spec.unique is None
        and not (spec.tags or spec.meta or has_links(spec))
        and spec.holder is None
        and spec.trace is None
        and not spec.code
        and not shortened
        and spec.hold_for == HOLD_FOR
    ):
        return None
    return or_null(pack(SpecExtras(**{name: getattr(spec, name) for name in OF_SPEC}, shortened=shortened)))


def spec_of(
    name: LaneName,
    id: str,  # noqa: A002
    unique: str | None,
    options: Options,
    columns: Sequence[Any],
) -> JobSpec:
    """The spec of a job. `columns` are asked, by, run, owner, key, extra and args."""
    queue, task, version = name
    asked, by, run, owner, key, extra, args = columns
    if extra is None:
        return JobSpec(
            id=id, task=task, args=args, queue=queue, version=version, priority=asked, by=by, run=run, owner=owner,
            key=key, unique=unique, options=options,
        )  # fmt: skip
    more = unpack_extra(extra)
    return JobSpec(
        id=id, task=task, args=args, queue=queue, version=version, priority=asked, by=by, run=run, owner=owner, key=key,
        unique=unique, options=options,
        **{name: getattr(more, name) for name in OF_SPEC},
    )  # fmt: skip


def batch_of(extra: bytes | None) -> str | None:
    """The batch key of a job."""
    return unpack_extra(extra).batch if extra is not None and _BATCH in extra else None


def is_shortened(extra: bytes | None) -> bool:
    """Whether the wait limit of a job was cut."""
    return extra is not None and _SHORTENED in extra and unpack_extra(extra).shortened


def or_null(packed: bytes) -> bytes | None:
    """None for a struct whose fields all have their default."""
    return None if packed == _EMPTY else packed

"""Tagged JSON: plain JSON where possible; other values are objects with the single key "$", which name their type.

{"$": ["decimal", "1.10"]}         a type, and the value as text
{"$": ["tuple", [1, 2]]}           likewise set and frozenset
{"$": ["map", [[1, "a"]]]}         a dict with keys that are not strings, as pairs
{"$": ["dict", {"$": 1}]}          a dict with a key "$" of its own
{"$": ["secret", "hunter2"]}       a Secret and its content
{"$": ["as", ["Circle", {...}]]}   a class in a union, and its plain form
{"$": ["file", {"sha256": ...}]}   a File: its digest, its size and its name
{"$": ["file npy", {...}]}         a numpy array; likewise `file pandas` and `file polars`
{"$": ["any", ...]}                a result that does not match its annotation, to be read without it
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Final
from uuid import UUID

import msgspec

from daybreak.core.errors import BadFile, BadInput, NotEncodable, TooLarge
from daybreak.core.units import MICROSECOND
from daybreak.values.arrays import ARRAY_TAGS, array_tag, read_array, write_array
from daybreak.values.errors import DEPTH_LIMIT, Refusal, not_encodable, numpy_class, short_repr, step, too_deep
from daybreak.values.file import File, read_file, write_file
from daybreak.values.secret import Secret

__all__ = ["DEPTH_LIMIT", "decode", "encode"]

TAG: Final = "$"
# Other JSON readers keep 64 bits at best, so larger integers are written as text.
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1

write_json: Final = msgspec.json.Encoder().encode
read_json: Final = msgspec.json.Decoder().decode


def encode(value: object, what: str = "value") -> bytes:
    """JSON that `decode` turns into an equal value, NaN and infinities included. `what` names the value in errors."""
    try:
        return write_json(to_tagged(value, 0))
    except Refusal as refusal:
        raise refusal.as_error(what) from None


def decode(data: bytes) -> Any:
    try:
        return from_tagged(read_json(data))
    except Refusal as refusal:
        raise refusal.as_error("value") from None
    except RecursionError:
        raise TooLarge(f"value: nested deeper than {DEPTH_LIMIT} levels") from None


# -- writing ---------------------------------------------------------------------------------------------------------


def to_tagged(value: Any, depth: int) -> object:
    """The tagged JSON of a value; `from_tagged` returns an equal value of the same type."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else check_text(value)
    if kind is int:
        return value if LOWEST <= value <= HIGHEST else tag_big_int(value)
    if kind is float:
        return value if math.isfinite(value) else {TAG: ["float", repr(value)]}
    if kind is bool or value is None:
        return value
    if (write := _TAGGED_TEXTS.get(kind)) is not None:
        return {TAG: list(write(value))}
    if depth >= DEPTH_LIMIT and kind in _CONTAINERS:
        raise too_deep()
    if kind is list:
        return write_items(value, to_tagged, depth)
    if kind is dict:
        return _write_str_dict(value, depth)
    if kind is tuple:
        return {TAG: ["tuple", write_items(value, to_tagged, depth)]}
    if kind is set or kind is frozenset:
        return write_set(value, to_tagged, depth)
    if kind is Secret:
        return {TAG: ["secret", to_tagged(value.reveal(), depth + 1)]}
    if kind is File:
        return {TAG: ["file", write_file(value)]}
    if type(number := from_numpy(value)) is not kind:
        return to_tagged(number, depth)
    if (tag := array_tag(value)) is not None:
        return {TAG: write_array(value, tag)}
    raise not_encodable(value)


Write = Callable[[Any, int], object]


def write_items(values: Iterable[Any], write: Write, depth: int) -> list[object]:
    written: list[object] = []
    try:
        for value in values:
            written.append(write(value, depth + 1))  # noqa: PERF401 - its length says which one was refused
    except Refusal as refusal:
        raise refusal.at(f"[{len(written)}]") from None
    return written


def write_set(values: set[Any] | frozenset[Any], write: Write, depth: int) -> object:
    """A set is sorted, because equal sets must be equal content in every process."""
    written = [write(value, depth + 1) for value in values]
    return {TAG: ["set" if isinstance(values, set) else "frozenset", sorted(written, key=write_json)]}


def _write_str_dict(values: dict[Any, Any], depth: int) -> object:
    written: dict[str, object] = {}
    for key, value in values.items():
        if type(key) is not str or not key.isascii():
            return write_dict(values, to_tagged, to_tagged, depth)
        try:
            written[key] = to_tagged(value, depth + 1)
        except Refusal as refusal:
            raise refusal.at(step(key)) from None
    return escape_dict(written)


def write_dict(values: Mapping[Any, Any], write_key: Write, write: Write, depth: int) -> object:
    keys: list[object] = []
    written: list[object] = []
    for key, value in values.items():
        try:
            keys.append(write_key(key, depth + 1))
        except Refusal as refusal:
            raise Refusal(refusal.error, f"in a key: {refusal.message}") from None
        try:
            written.append(write(value, depth + 1))
        except Refusal as refusal:
            raise refusal.at(step(key)) from None
    if any(type(key) is not str for key in keys):
        return {TAG: ["map", [list(pair) for pair in zip(keys, written, strict=True)]]}
    return escape_dict(dict(zip(keys, written, strict=True)))


def escape_dict(written: dict[Any, object]) -> object:
    """The object to write: a user's own {"$": ...} is wrapped, so that it is not read as a tag."""
    return {TAG: ["dict", written]} if TAG in written else written


def check_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refusal(NotEncodable, "the text contains an unpaired surrogate, which cannot be encoded") from None
    return value


def tag_big_int(value: int) -> object:
    # In hex, because Python does not convert decimals of more than 4300 digits.
    return {TAG: ["int", hex(value)]}


def from_numpy(value: Any) -> Any:
    """A numpy scalar as a plain number, string or bytes; any other value unchanged."""
    if not isinstance(value, _numpy_plain()) or isinstance(value, numpy_class("timedelta64")):
        return value
    item = value.item()  # type: ignore[attr-defined]
    return item if type(item) in (bool, int, float, str, bytes) else value


def _numpy_plain() -> tuple[type, ...]:
    found = (numpy_class(name) for name in ("number", "bool_", "character"))
    return tuple(kind for kind in found if isinstance(kind, type))


def _write_time(value: datetime | time, name: str, read: Callable[[str], Any]) -> tuple[str, str]:
    written = value.isoformat()
    # An offset describes a fixed zone completely. For other zones it may not be enough: an hour that the clock repeats
    # is equal to no time with an offset, and a time without a date has no offset.
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        back = read(written)
        if back != value or back.tzinfo is None:
            raise Refusal(
                NotEncodable,
                f"{short_repr(value)} would not be decoded equal, because of its time zone; pass it in UTC",
            )
    return name, written


_TAGGED_TEXTS: Final[dict[type, Callable[[Any], tuple[str, str]]]] = {
    datetime: lambda value: _write_time(value, "datetime", datetime.fromisoformat),
    date: lambda value: ("date", value.isoformat()),
    time: lambda value: _write_time(value, "time", time.fromisoformat),
    timedelta: lambda value: ("timedelta", str(value // MICROSECOND)),
    UUID: lambda value: ("uuid", str(value)),
    Decimal: lambda value: ("decimal", str(value)),
    bytes: lambda value: ("bytes", base64.b64encode(value).decode()),
    bytearray: lambda value: ("bytearray", base64.b64encode(value).decode()),
    # Only paths of this system: others would be decoded as another class.
    type(Path()): lambda value: ("path", check_text(str(value))),
    type(PurePath()): lambda value: ("path", check_text(str(value))),
}
_CONTAINERS: Final = frozenset({list, dict, tuple, set, frozenset, Secret})


# -- reading ---------------------------------------------------------------------------------------------------------


def from_tagged(raw: Any) -> Any:
    """The value of tagged JSON."""
    kind = type(raw)
    if kind is list:
        return [from_tagged(item) for item in raw]
    if kind is not dict:
        return raw
    name, inner = split_tag(raw)
    if name is None:
        return {key: from_tagged(item) for key, item in raw.items()}
    try:
        return _READERS[name](inner)
    except BadFile:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise _unknown_tag(name) from None


def split_tag(raw: Any) -> tuple[str | None, Any]:
    """The tag and its content; None and the value itself if there is no tag."""
    if type(raw) is not dict or len(raw) != 1 or TAG not in raw:
        return None, raw
    match raw[TAG]:
        case [str() as name, inner]:
            return name, inner
    raise _unknown_tag(None)


def _unknown_tag(name: str | None) -> Refusal:
    # The content is not shown, because it may be secret.
    tag = f"the tag {name!r}" if name else 'an object with only the key "$"'
    return Refusal(BadInput, f"{tag} was not written by this version of Daybreak")


def split_class(raw: Any) -> tuple[str | None, Any]:
    """The class name that a union wrote, and the plain form; None and the value itself if there is no name."""
    match split_tag(raw):
        case "as", [str() as label, inner]:
            return label, inner
    return None, raw


def untagged_dict(raw: Any) -> dict[str, Any] | None:
    """The dict of a plain object, written with or without its tag; None if it is something else."""
    name, inner = split_tag(raw)
    return inner if name in (None, "dict") and type(inner) is dict else None


def _read_items(inner: Any) -> list[Any]:
    if type(inner) is not list:
        raise TypeError
    return [from_tagged(item) for item in inner]


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda inner: timedelta(microseconds=int(inner)),
    "uuid": UUID,
    "decimal": Decimal,
    "bytes": base64.b64decode,
    "bytearray": lambda inner: bytearray(base64.b64decode(inner)),
    "float": float,
    "path": Path,
    "int": lambda inner: int(inner, 0),
    "tuple": lambda inner: tuple(_read_items(inner)),
    "set": lambda inner: set(_read_items(inner)),
    "frozenset": lambda inner: frozenset(_read_items(inner)),
    "dict": lambda inner: {key: from_tagged(item) for key, item in inner.items()},
    "map": lambda inner: {from_tagged(key): from_tagged(item) for key, item in inner},
    "secret": lambda inner: Secret(from_tagged(inner)),
    "file": read_file,
    **{tag: read_array(tag) for tag in ARRAY_TAGS},
    "as": lambda inner: from_tagged(inner[1]),
    "any": from_tagged,
}

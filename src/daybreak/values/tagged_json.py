"""Values that say themselves what they are: JSON, and for what JSON cannot say, an object with the single key "$".

{"$": ["decimal", "1.10"]}         its type, and its text
{"$": ["tuple", [1, 2]]}           likewise set, frozenset
{"$": ["map", [[1, "a"]]]}         a dict whose keys are no texts, as pairs
{"$": ["dict", {"$": 1}]}          a dict that has a key "$" of its own
{"$": ["secret", "hunter2"]}       a Secret, with what it holds
{"$": ["as", ["Circle", {...}]]}   which class of a union it is; without the annotation, its plain form
{"$": ["any", ...]}                a result unlike its annotation, which is to be read without it
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

from daybreak.core.errors import BadInput, NotEncodable, TooLarge
from daybreak.core.units import MICROSECOND
from daybreak.values.errors import DEPTH_LIMIT, Refusal, numpy_class, short, step, too_deep, unlike
from daybreak.values.secret import Secret

__all__ = ["DEPTH_LIMIT", "decode", "encode"]

TAG: Final = "$"
# Readers of JSON elsewhere keep 64 bits at best; what is larger travels as text.
LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1

write_json: Final = msgspec.json.Encoder().encode
read_json: Final = msgspec.json.Decoder().decode


def encode(value: object, what: str = "value") -> bytes:
    """JSON from which `decode` gives an equal value. NaN and infinities survive."""
    try:
        return write_json(plain(value, 0))
    except Refusal as refusal:
        raise refusal.named(what) from None


def decode(data: bytes) -> Any:
    try:
        return rich(read_json(data))
    except Refusal as refusal:
        raise refusal.named("value") from None
    except RecursionError:
        raise TooLarge(f"value: nested deeper than {DEPTH_LIMIT} levels") from None


# -- writing ---------------------------------------------------------------------------------------------------------


def plain(value: Any, depth: int) -> object:
    """What to write as JSON so that `rich` gives an equal value of the same type."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() else text(value)
    if kind is int:
        return value if LOWEST <= value <= HIGHEST else big(value)
    if kind is float:
        return value if math.isfinite(value) else {TAG: ["float", repr(value)]}
    if kind is bool or value is None:
        return value
    if (write := _TEXTS.get(kind)) is not None:
        return {TAG: list(write(value))}
    if depth >= DEPTH_LIMIT and kind in _HOLDERS:
        raise too_deep()
    if kind is list:
        return items(value, plain, depth)
    if kind is dict:
        return _named(value, depth)
    if kind is tuple:
        return {TAG: ["tuple", items(value, plain, depth)]}
    if kind is set or kind is frozenset:
        return members(value, plain, depth)
    if kind is Secret:
        return {TAG: ["secret", plain(value.reveal(), depth + 1)]}
    if type(number := from_numpy(value)) is not kind:
        return plain(number, depth)
    raise unlike(value)


Write = Callable[[Any, int], object]


def items(values: Iterable[Any], write: Write, depth: int) -> list[object]:
    written: list[object] = []
    try:
        for value in values:
            written.append(write(value, depth + 1))  # noqa: PERF401 - its length says which one was refused
    except Refusal as refusal:
        raise refusal.at(f"[{len(written)}]") from None
    return written


def members(values: set[Any] | frozenset[Any], write: Write, depth: int) -> object:
    """Sorted, because the same set must be the same content in every process."""
    written = [write(value, depth + 1) for value in values]
    return {TAG: ["set" if isinstance(values, set) else "frozenset", sorted(written, key=write_json)]}


def _named(values: dict[Any, Any], depth: int) -> object:
    written: dict[str, object] = {}
    for key, value in values.items():
        if type(key) is not str or not key.isascii():
            return pairs(values, plain, plain, depth)
        try:
            written[key] = plain(value, depth + 1)
        except Refusal as refusal:
            raise refusal.at(step(key)) from None
    return escaped(written)


def pairs(values: Mapping[Any, Any], write_key: Write, write: Write, depth: int) -> object:
    keys: list[object] = []
    written: list[object] = []
    for key, value in values.items():
        try:
            keys.append(write_key(key, depth + 1))
        except Refusal as refusal:
            raise Refusal(refusal.error, f"in a key: {refusal.told}") from None
        try:
            written.append(write(value, depth + 1))
        except Refusal as refusal:
            raise refusal.at(step(key)) from None
    if any(type(key) is not str for key in keys):
        return {TAG: ["map", [list(pair) for pair in zip(keys, written, strict=True)]]}
    return escaped(dict(zip(keys, written, strict=True)))


def escaped(written: dict[Any, object]) -> object:
    """An object as it is to be written: a user's own {"$": ...} must not be read as one of ours."""
    return {TAG: ["dict", written]} if TAG in written else written


def text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refusal(NotEncodable, "the text holds half a surrogate pair, which no encoding can carry") from None
    return value


def big(value: int) -> object:
    # In hex, because Python refuses to read or write decimals of more than 4300 digits.
    return {TAG: ["int", hex(value)]}


def from_numpy(value: Any) -> Any:
    """The number or text that a numpy scalar stands for; anything else as it is."""
    if not isinstance(value, _numpy_plain()) or isinstance(value, numpy_class("timedelta64")):
        return value
    item = value.item()  # type: ignore[attr-defined]
    return item if type(item) in (bool, int, float, str, bytes) else value


def _numpy_plain() -> tuple[type, ...]:
    found = (numpy_class(name) for name in ("number", "bool_", "character"))
    return tuple(kind for kind in found if isinstance(kind, type))


def _instant(value: datetime | time, name: str, read: Callable[[str], Any]) -> tuple[str, str]:
    written = value.isoformat()
    # An offset says all of a fixed zone. Of others it can say too little: the hour that a clock repeats is equal to
    # no offset's, and a bare time has none.
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        back = read(written)
        if back != value or back.tzinfo is None:
            raise Refusal(NotEncodable, f"{short(value)} would not come back equal, for its time zone; pass it in UTC")
    return name, written


_TEXTS: Final[dict[type, Callable[[Any], tuple[str, str]]]] = {
    datetime: lambda value: _instant(value, "datetime", datetime.fromisoformat),
    date: lambda value: ("date", value.isoformat()),
    time: lambda value: _instant(value, "time", time.fromisoformat),
    timedelta: lambda value: ("timedelta", str(value // MICROSECOND)),
    UUID: lambda value: ("uuid", str(value)),
    Decimal: lambda value: ("decimal", str(value)),
    bytes: lambda value: ("bytes", base64.b64encode(value).decode()),
    bytearray: lambda value: ("bytearray", base64.b64encode(value).decode()),
    # Of paths only those of this system: another's would come back as something else.
    type(Path()): lambda value: ("path", text(str(value))),
    type(PurePath()): lambda value: ("path", text(str(value))),
}
_HOLDERS: Final = frozenset({list, dict, tuple, set, frozenset, Secret})


# -- reading ---------------------------------------------------------------------------------------------------------


def rich(raw: Any) -> Any:
    """The value that JSON with tags stands for."""
    kind = type(raw)
    if kind is list:
        return [rich(item) for item in raw]
    if kind is not dict:
        return raw
    name, inner = opened(raw)
    if name is None:
        return {key: rich(item) for key, item in raw.items()}
    try:
        return _READERS[name](inner)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise _unwritten(name) from None


def opened(raw: Any) -> tuple[str | None, Any]:
    """The tag and what it holds; None and the value itself, if it has no tag."""
    if type(raw) is not dict or len(raw) != 1 or TAG not in raw:
        return None, raw
    match raw[TAG]:
        case [str() as name, inner]:
            return name, inner
    raise _unwritten(None)


def _unwritten(name: str | None) -> Refusal:
    # Without its content, of which some may be secret.
    tag = f"the tag {name!r} here" if name else 'an object with nothing but "$"'
    return Refusal(BadInput, f"{tag} is nothing that this Daybreak has written")


def named_class(raw: Any) -> tuple[str | None, Any]:
    """The class that a union named, and its plain form; None and the value itself, if it named none."""
    match opened(raw):
        case "as", [str() as label, inner]:
            return label, inner
    return None, raw


def opened_dict(raw: Any) -> dict[str, Any] | None:
    """The keys and values of a plain object, written with or without its tag; None if it is something else."""
    name, inner = opened(raw)
    return inner if name in (None, "dict") and type(inner) is dict else None


def _listed(inner: Any) -> list[Any]:
    if type(inner) is not list:
        raise TypeError
    return [rich(item) for item in inner]


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
    "tuple": lambda inner: tuple(_listed(inner)),
    "set": lambda inner: set(_listed(inner)),
    "frozenset": lambda inner: frozenset(_listed(inner)),
    "dict": lambda inner: {key: rich(item) for key, item in inner.items()},
    "map": lambda inner: {rich(key): rich(item) for key, item in inner},
    "secret": lambda inner: Secret(rich(inner)),
    "as": lambda inner: rich(inner[1]),
    "any": rich,
}

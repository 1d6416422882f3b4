"""Arguments and results as JSON that comes back equal, or a refusal that says where it would not.

What JSON cannot say is written as an object with the single key "$": its type, and its text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, Final
from uuid import UUID

import msgspec

from daybreak.errors import NotEncodable, TooLarge
from daybreak.units import MICROSECOND

DEPTH_LIMIT: Final = 64
_TAG: Final = "$"

_encoder = msgspec.json.Encoder()

_TEXTS: dict[type, tuple[str, Callable[[Any], str]]] = {
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda value: str(value // MICROSECOND)),
    UUID: ("uuid", str),
    Decimal: ("decimal", str),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
}
_READERS: dict[str, Callable[[str], object]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda text: timedelta(microseconds=int(text)),
    "uuid": UUID,
    "decimal": Decimal,
    "bytes": base64.b64decode,
    "float": float,
    "path": Path,
    "int": lambda text: int(text, 0),
}


def encode(value: object, what: str = "value") -> bytes:
    """JSON from which `decode` gives an equal value. NaN and infinities survive."""
    return _encoder.encode(_plain(value, what, 0))


def decode(data: bytes) -> Any:
    return _rich(msgspec.json.decode(data))


def _plain(value: Any, where: str, depth: int) -> object:
    kind = type(value)
    if kind is str:
        return _text(value, where)
    if kind is bool or value is None:
        return value
    if kind is int:
        # Readers of JSON elsewhere keep 64 bits at best; what is larger travels as text. In hex, because Python refuses
        # to read or write decimals of more than 4300 digits.
        return value if -(2**63) <= value < 2**63 else {_TAG: ["int", hex(value)]}
    if kind is float:
        return value if math.isfinite(value) else {_TAG: ["float", repr(value)]}
    if kind in _TEXTS:
        name, write = _TEXTS[kind]
        return {_TAG: [name, write(value)]}
    if isinstance(value, PurePath) and Path(value) == value:  # a path of another system would not be
        return {_TAG: ["path", _text(str(value), where)]}
    if depth >= DEPTH_LIMIT:
        raise TooLarge(f"{where}: nested deeper than {DEPTH_LIMIT} levels")
    if kind is list:
        return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is tuple:
        return {_TAG: ["tuple", [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]]}
    if kind is dict:
        return _mapping(value, where, depth)
    raise NotEncodable(
        f"{where}: a {kind.__module__}.{kind.__qualname__} would not come back equal; "
        "pass plain data (numbers, text, bytes, dates, lists, tuples, dicts with text keys)"
    )


def _mapping(value: dict[object, object], where: str, depth: int) -> object:
    plain: dict[str, object] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise NotEncodable(
                f"{where}: the key {key!r} is no text, and JSON keys are; use text keys or a list of pairs"
            )
        plain[_text(key, where)] = _plain(item, f"{where}.{key}", depth + 1)
    # A user's own {"$": ...} must not be read as one of ours.
    return {_TAG: ["dict", plain]} if _TAG in plain else plain


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotEncodable(f"{where}: the text holds half a surrogate pair, which no encoding can carry") from None
    return value


def _rich(value: object) -> object:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _TAG in value:
        name, inner = value[_TAG]
        if name == "tuple":
            return tuple(_rich(item) for item in inner)
        if name == "dict":
            return {key: _rich(item) for key, item in inner.items()}
        return _READERS[name](inner)
    return {key: _rich(item) for key, item in value.items()}

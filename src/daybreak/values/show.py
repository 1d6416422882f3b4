"""Stored values for people: readable, and without secrets."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec

from daybreak.core.units import counted
from daybreak.values.errors import Refusal
from daybreak.values.secret import HIDDEN
from daybreak.values.tagged_json import opened, read_json


def shown(data: bytes) -> object:
    """Plain JSON data that says what is stored, secrets as ***. Never fails, whatever is stored."""
    try:
        return _shown(read_json(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not even as text: nobody knows what is secret in it.
        return f"({counted(len(data), 'byte')} that cannot be read)"


def _shown(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_shown(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    try:
        name, inner = opened(raw)
    except Refusal:
        name = None
    if name is None:
        return {key: _shown(item) for key, item in raw.items()}
    with suppress(ValueError, TypeError, AttributeError, IndexError, OverflowError):
        return _SHOWN.get(name, _shown)(inner)
    return _shown(inner)


def _bytes(inner: str) -> str:
    with suppress(UnicodeDecodeError):
        text = base64.b64decode(inner).decode()
        if text.isprintable():
            return text
    return inner


def _int(inner: str) -> str:
    # As text, because JSON readers elsewhere round what is longer than 64 bits; in hex, where Python writes no decimal.
    with suppress(ValueError):
        return str(int(inner, 0))
    return inner


_SHOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "secret": lambda _: HIDDEN,
    "bytes": _bytes,
    "bytearray": _bytes,
    "int": _int,
    "timedelta": lambda inner: str(timedelta(microseconds=int(inner))),
    "dict": lambda inner: {key: _shown(item) for key, item in inner.items()},
    "map": lambda inner: {str(_shown(key)): _shown(item) for key, item in inner},
    "as": lambda inner: _shown(inner[1]),
}

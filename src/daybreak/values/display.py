"""Stored values for display: readable, and without secrets."""

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
from daybreak.values.tagged_json import read_json, split_tag


def shown(data: bytes) -> object:
    """The stored value as plain JSON data, secrets as ***. Never fails, whatever is stored."""
    try:
        return _display(read_json(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Not shown as text, because it may contain secrets.
        return f"({counted(len(data), 'byte')} that cannot be decoded)"


def _display(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_display(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    try:
        name, inner = split_tag(raw)
    except Refusal:
        name = None
    if name is None:
        return {key: _display(item) for key, item in raw.items()}
    with suppress(ValueError, TypeError, AttributeError, IndexError, OverflowError):
        return _DISPLAYS.get(name, _display)(inner)
    return _display(inner)


def _bytes(inner: str) -> str:
    with suppress(UnicodeDecodeError):
        text = base64.b64decode(inner).decode()
        if text.isprintable():
            return text
    return inner


def _int(inner: str) -> str:
    # As text, because other JSON readers round integers above 64 bits; in hex if Python refuses the decimal form.
    with suppress(ValueError):
        return str(int(inner, 0))
    return inner


def _large_result(inner: dict[str, Any]) -> dict[str, Any]:
    return {"what": "large result", "size": inner["size"], "sha256": inner["sha256"]}


_DISPLAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "secret": lambda _: HIDDEN,
    "bytes": _bytes,
    "bytearray": _bytes,
    "int": _int,
    "timedelta": lambda inner: str(timedelta(microseconds=int(inner))),
    "file result": _large_result,
    "dict": lambda inner: {key: _display(item) for key, item in inner.items()},
    "map": lambda inner: {str(_display(key)): _display(item) for key, item in inner},
    "as": lambda inner: _display(inner[1]),
}

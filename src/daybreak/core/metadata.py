"""The metadata of a job: JSON values, kept as texts.

A store keeps texts. A plain text is kept as it is; any other value, and a text that begins like an encoded one, is kept
as JSON behind a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput

PREFIX: Final = "json:"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode_meta(meta: Mapping[str, Any]) -> dict[str, str]:
    """The texts to store. A value that JSON would give back as another one is refused."""
    return {name: _encoded(name, value) for name, value in meta.items()}


def decode_meta(stored: Mapping[str, str]) -> dict[str, Any]:
    """The values that were given. A stored text that is no valid JSON is returned as it is."""
    return {name: _decoded(text) for name, text in stored.items()}


def meta_text(value: object) -> str:
    """A value as people read it: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return _encode(value).decode()


def _encoded(name: str, value: object) -> str:
    if isinstance(value, str) and not value.startswith(PREFIX):
        return value
    try:
        text = _encode(value)
        if _decode(text) == value:
            return PREFIX + text.decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass
    raise BadInput(
        f"meta {name!r}: {value!r:.80} cannot be kept: a value is text, a finite number, True, False, None, or a list "
        "or a dict of these with text as keys"
    )


def _decoded(text: str) -> Any:
    if not text.startswith(PREFIX):
        return text
    try:
        return _decode(text[len(PREFIX) :])
    except (msgspec.DecodeError, RecursionError):
        return text

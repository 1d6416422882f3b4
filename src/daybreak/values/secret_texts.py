"""The texts of the secrets in a stored value, to mask them in output."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from daybreak.values.errors import Refusal
from daybreak.values.tagged_json import read_json, split_tag

MIN_CHARS: Final = 4  # a shorter text occurs by chance
_MARK: Final = b'"secret"'


def secret_texts(data: bytes) -> list[str]:
    """The texts inside the secrets of a stored value, the longest first: one may contain another. Never fails."""
    if _MARK not in data:
        return []
    found: set[str] = set()
    try:
        _collect(read_json(data), found, is_secret=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return sorted(found, key=len, reverse=True)


def _collect(raw: Any, found: set[str], *, is_secret: bool) -> None:
    if isinstance(raw, str):
        if is_secret and len(raw) >= MIN_CHARS:
            found.add(raw)
    elif isinstance(raw, list):
        for item in raw:
            _collect(item, found, is_secret=is_secret)
    elif isinstance(raw, dict):
        try:
            name, inner = split_tag(raw)
        except Refusal:
            name = None
        if name is not None:
            _collect(inner, found, is_secret=is_secret or name == "secret")
            return
        for item in raw.values():
            _collect(item, found, is_secret=is_secret)

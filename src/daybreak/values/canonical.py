"""One form for all encodings of equal content, for digests: what would give a task the same work gives the same bytes.

A File counts by its content, whatever its name and place; entries of a dict have no order. Secrets are sealed: the form
holds a keyed digest of their content, from which nobody without the key can find a short one by trying."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.values.errors import Refusal
from daybreak.values.tagged_json import TAG, read_json, split_tag

_SECRET_MARK: Final = b'["secret"'
_write_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class NeedsSeal(Exception):
    """The value has a secret, and there is no key to seal it."""


def has_secret(encoded: bytes) -> bool:
    """Whether an encoded value may contain a secret."""
    return _SECRET_MARK in encoded


def canonical(raw: Any, seal: bytes | None) -> bytes:
    """The canonical form of a value as it was decoded from tagged JSON. `seal` is the key for its secrets. Raises
    NeedsSeal if there is none, and BadInput if the content of a file is not known yet."""
    return _write_sorted(_form(raw, seal))


def sealed(content: bytes, seal: bytes | None) -> str:
    """The keyed digest of a content."""
    if seal is None:
        raise NeedsSeal
    return hashlib.blake2b(content, key=seal, digest_size=32).hexdigest()


def _form(raw: Any, seal: bytes | None) -> Any:
    kind = type(raw)
    if kind is list:
        return [_form(item, seal) for item in raw]
    if kind is not dict:
        return raw
    name, inner = split_tag(raw)
    if name is None:
        return {key: _form(item, seal) for key, item in raw.items()}
    if name == "secret":
        return {TAG: ["secret", sealed(_write_sorted(_form(inner, seal)), seal)]}
    if name.startswith("file") and type(inner) is dict:
        if inner.get("on_change") == "newest":
            raise BadInput(
                f"File({inner.get('name')!r}, on_change='newest') may have another content when the job runs, so the "
                "result cannot be cached: leave on_change out, or submit with using(cache=False)"
            )
        return {TAG: [name, inner.get("sha256")]}
    if name == "dict":
        return {TAG: [name, {key: _form(item, seal) for key, item in inner.items()}]}
    written = _form(inner, seal)
    if name == "map":
        written = sorted(written, key=_write_sorted)
    return {TAG: [name, written]}


def read_encoded(encoded: bytes) -> Any:
    """The tagged JSON of an encoded value."""
    try:
        return read_json(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(BadInput, f"not JSON: {error}").as_error("value") from None

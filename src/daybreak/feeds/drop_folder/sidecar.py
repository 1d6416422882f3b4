"""Priority and metadata of a dropped file, in `NAME.meta.json` beside it."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import priority
from daybreak.feeds.drop_folder.entry import NotTaken
from daybreak.feeds.drop_folder.entry_name import ERROR_INFO, SIDECAR, EntryName
from daybreak.feeds.drop_folder.folder_handle import FolderHandle

_LIMIT: Final = 64 * 1024
_ENTRIES: Final = 40


class Sidecar(Struct, frozen=True):
    """What is written beside a file. `attempts` were made by the old format's queue."""

    priority: int | None = None
    metadata: dict[str, str] = {}
    attempts: int = 0


class BadSidecar(Exception):
    """The text of a sidecar is wrong: its file is refused."""


def read_sidecar(folder: FolderHandle, entry: EntryName) -> Sidecar:
    """The sidecar of a file; an empty one if there is none. Raises BadSidecar if its text is wrong, and NotTaken if it
    cannot be read."""
    for name in dict.fromkeys((entry.title + SIDECAR, entry.name + SIDECAR)):
        if folder.has(name):
            return parse_sidecar(_read(folder, name), name)
    if entry.leftover == "error":
        return _old_error(folder, entry.title + ERROR_INFO)
    return Sidecar()


def _read(folder: FolderHandle, name: str) -> bytes:
    try:
        return folder.read(name, _LIMIT)
    except OSError as error:
        raise NotTaken(f"its sidecar {name} cannot be read: {error.strerror or error}") from None


def parse_sidecar(text: bytes, name: str) -> Sidecar:
    """Parse a sidecar: {"priority": "high", "metadata": {"station": "S7"}}."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSidecar(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadSidecar(f'{name}: write an object, such as {{"priority": "high", "metadata": {{"station": "S7"}}}}')
    try:
        level = None if found.get("priority") is None else priority(found["priority"])
    except BadInput as error:
        raise BadSidecar(f"{name}: {error}") from None
    return Sidecar(level, _metadata(found.get("metadata"), name), _count(found.get("attempts")))


def _metadata(found: object, name: str) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or len(found) > _ENTRIES:
        raise BadSidecar(f"{name}: metadata is an object with at most {_ENTRIES} entries")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}


def _old_error(folder: FolderHandle, name: str) -> Sidecar:
    """What the old queue wrote about a failed upload: {"error": ..., "timestamp": ..., "attempts": ...}."""
    if not folder.has(name):
        return Sidecar()
    try:
        found = msgspec.json.decode(_read(folder, name))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Sidecar()
    if not isinstance(found, dict):
        return Sidecar()
    metadata = {"earlier_error": str(found["error"])[:500]} if found.get("error") else {}
    return Sidecar(None, metadata, _count(found.get("attempts")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1000 else 0

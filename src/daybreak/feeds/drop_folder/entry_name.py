"""What the name of an entry says: its priority, and whether it is a sidecar, a marker or a leftover of the old
format."""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.units import Priority, priority

SIDECAR: Final = ".meta.json"
ERROR_INFO: Final = ".error.info"
Leftover = Literal["", "queued", "processing", "error", "completed"]
_LEFTOVERS: Final[dict[str, Leftover]] = {
    ".queued": "queued", ".processing": "processing", ".error": "error", ".completed": "completed",
}  # fmt: skip
# Names under which programs write a file before they rename it.
_UNFINISHED: Final = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", "~")
_PRIORITY: Final = re.compile(r"\.p(10|[0-9])(?:\.[^.]+)?$", re.IGNORECASE)


class EntryName(Struct, frozen=True):
    """A file that may be taken. `name` is the name in the folder, `title` the name without the old format's suffix."""

    folder: str  # "" or the name of a priority folder
    name: str
    title: str
    leftover: Leftover = ""

    @property
    def path(self) -> str:
        """The name relative to the watched folder."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def parse_name(folder: str, name: str, pattern: str, marker: str | None) -> EntryName | None:
    """The entry that this name stands for; None if it is hidden, a companion of another file, or not in the pattern."""
    if name.startswith(".") or name.endswith((SIDECAR, ERROR_INFO)):
        return None
    if marker is not None and name.endswith(marker):
        return None
    for suffix, leftover in _LEFTOVERS.items():
        title = name.removesuffix(suffix)
        if title and title != name:
            return EntryName(folder, name, title, leftover)
    if not fnmatchcase(name, pattern):
        return None
    if name.endswith(_UNFINISHED) and not pattern.endswith(_UNFINISHED):
        return None
    return EntryName(folder, name, name)


def name_problem(name: str) -> str:
    """Why no job may have a file of this name; empty if one may."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return "its name is not that of a file"
    kinds = {unicodedata.category(char) for char in name}
    if "Cs" in kinds:
        return "its name is not valid UTF-8"
    if kinds & {"Cc", "Cf", "Zl", "Zp"}:
        return "its name contains control characters"
    return ""


def priority_in_name(name: str) -> int | None:
    """1 for `report.p1.json` and for `report.p1`; None if the name says nothing."""
    found = _PRIORITY.search(name)
    return None if found is None else int(found[1])


def folder_priority(name: str) -> int | None:
    """The priority of a folder `1` or `critical`; None if it is not the name of a priority."""
    try:
        return priority(int(name) if name.isascii() and name.isdigit() and len(name) <= 2 else name)
    except BadInput:
        return None


def priority_folders() -> list[str]:
    """Every name that a priority folder may have, in lower case."""
    return [*map(str, range(11)), *(each.name.lower() for each in Priority)]

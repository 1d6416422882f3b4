"""What a place for contents can do, and what is known of one content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from daybreak.core.errors import StoreCorrupt
from daybreak.system.file_content import pieces_of
from daybreak.values.file import Content

_NAME_LIMIT: Final = 150
_NOT_IN_NAMES: Final = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')


class BlobInfo(Struct, frozen=True, order=True):
    """One stored content. `touched_at` is when it was last stored or submitted again."""

    digest: str
    size: int
    touched_at: datetime


class Blobs(Protocol):
    """A place for contents. Its methods block, and may be called from any thread."""

    @property
    def location(self) -> str:
        """The URL by which another process finds this place."""
        ...

    def put(self, content: Content) -> None:
        """Store a content, durably, unless it is there; either way it counts as touched now. Raises BadFile if its file
        no longer has this digest, and StoreFull if there is no space; then nothing is stored."""
        ...

    def touch(self, digest: str) -> bool:
        """Say that this content is needed: it is not deleted for a day. False if it is not there."""
        ...

    def path(self, digest: str, name: str) -> Path:
        """A read-only file of this name with this content, which was verified. Raises StoreCorrupt if the content is
        missing or damaged."""
        ...

    def pieces(self, digest: str) -> Iterator[bytes]:
        """The content, piece by piece, unverified. Raises StoreCorrupt if it is missing."""
        ...

    def infos(self) -> Iterator[BlobInfo]:
        """Every stored content."""
        ...

    def info(self, digest: str) -> BlobInfo | None:
        """What is known of a content; None if it is not there."""
        ...

    def verify(self, digest: str) -> None:
        """Compare a content with its digest. Raises StoreCorrupt if it is missing or damaged."""
        ...

    def delete(self, digest: str, before: datetime) -> bool:
        """Delete a content unless it was touched since `before`. A touch that happens meanwhile is respected."""
        ...

    def tidy(self, before: datetime) -> None:
        """Delete what a crash left behind before this time."""
        ...


def pieces_of_content(content: Content) -> Iterator[bytes]:
    """What must be stored, piece by piece."""
    if isinstance(content.data, bytes):
        yield content.data
    else:
        yield from pieces_of(content.data.path)


def safe_name(name: str) -> str:
    """A name for a file in a folder of ours. The given name may come from anyone."""
    found = _NOT_IN_NAMES.sub("_", name).strip(" .")
    encoded = found.encode("utf-8", "replace")
    if len(encoded) > _NAME_LIMIT:  # keep the end: programs read the suffix
        found = encoded[-_NAME_LIMIT:].decode("utf-8", "ignore")
    return found or "file"


def missing(digest: str, location: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the content sha256:{digest} is missing in {location}: submit the job again with its file, "
        "or restore the folder or bucket from a backup"
    )


def damaged(digest: str, location: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the content sha256:{digest} is damaged in {location}: it has another digest now; delete it there and "
        "submit a job with the original file, which stores it anew; `daybreak files verify` checks all contents"
    )


def verify_pieces(digest: str, pieces: Iterable[bytes], location: str) -> None:
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    if hashed.hexdigest() != digest:
        raise damaged(digest, location)

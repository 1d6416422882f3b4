"""A file as an argument or a result of a task. What is stored is its digest; the content is kept beside the jobs.

Encoding a File needs its digest. `collecting` is active where the contents can be stored: then a File is hashed on its
first use, and everything that must be stored is collected. Elsewhere only a File whose digest is known can be encoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from daybreak.core.errors import BadFile, BadInput, NotEncodable
from daybreak.core.units import clean
from daybreak.system.file_content import digest_of

OnChange = Literal["pin", "fail", "newest", "warn"]

# Every tag of something that is kept beside the jobs begins so, and its first entry is the digest.
MARK: Final = b'{"$":["file'
_DIGESTS: Final = re.compile(rb'\{"\$":\["file[^"]*",\{"sha256":"([0-9a-f]{64})"')
_SIZES: Final = re.compile(rb'\{"\$":\["file[^"]*",\{"sha256":"([0-9a-f]{64})","size":(\d{1,15})[,}]')
_CONTENTS: Final = re.compile(rb'\{"\$":\["file [^"]*",\{"sha256":"([0-9a-f]{64})"')
_FILE: Final = re.compile(rb'\{"\$":\["file",\{"sha256":"([0-9a-f]{64})"')
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def digests_in(*encoded: bytes | None) -> set[str]:
    """The digests of all contents to which encoded values refer."""
    found: set[str] = set()
    for data in encoded:
        if data and MARK in data:
            found.update(digest.decode() for digest in _DIGESTS.findall(data))
    return found


def described_in(encoded: bytes) -> list[dict[str, object]]:
    """The digests of all contents to which an encoded value refers, with their sizes."""
    sizes = dict(_SIZES.findall(encoded))
    return [
        {"sha256": digest, "size": int(sizes[digest.encode()])} if digest.encode() in sizes else {"sha256": digest}
        for digest in sorted(digests_in(encoded))
    ]


def first_digest_in(encoded: bytes) -> str | None:
    """The digest of the first File to which an encoded value refers."""
    found = _FILE.search(encoded) if MARK in encoded else None
    return None if found is None else found[1].decode()


def contents_in(encoded: bytes) -> set[str]:
    """The digests of contents that are needed to decode a value: of arrays and data frames, not of Files."""
    return {digest.decode() for digest in _CONTENTS.findall(encoded)}


class NotStored(NotEncodable):
    """A File or an array was encoded where its content cannot be stored."""


class File(os.PathLike[str]):
    """One file, whose content is pinned when it is first submitted, returned or asked for its digest.

    A job gets a File whose `path` is a read-only file with exactly that content, on every machine. `on_change` says
    what the job does if the original has other content by then: "pin" uses the submitted content, "warn" also logs a
    warning, "fail" fails the job, and "newest" uses the present content of the original, if there is one."""

    def __init__(self, path: str | os.PathLike[str], *, on_change: OnChange = "pin") -> None:
        try:
            text: str | bytes = os.fspath(path)
        except TypeError:
            text = b""
        if not isinstance(text, str) or not text or "\0" in text:
            raise BadFile(f"File({path!r:.60}): write the path of a file, such as File('model.plecs')")
        if on_change not in get_args(OnChange):
            choices = ", ".join(map(repr, get_args(OnChange)))
            raise BadInput(f"File(on_change={on_change!r:.40}): write one of {choices}")
        # Absolute now: the current folder may be another one when the file is read.
        self._path: Path | None = Path(os.path.abspath(text))  # noqa: PTH100 - symbolic links are not resolved
        self._name = self._path.name
        self._original: Path | None = self._path
        self._on_change: OnChange = on_change
        self._digest: str | None = None
        self._size = 0
        self._opener: Callable[[File], Path] | None = None

    @classmethod
    def stored(
        cls, digest: str, size: int, name: str, original: str | None = None, on_change: OnChange = "pin"
    ) -> File:
        """A File whose content is stored. `path` fetches it on first use."""
        file = cls.__new__(cls)
        file._take(digest, size, name, original, on_change)  # noqa: SLF001 - of this class
        if _local.decoded is not None:
            _local.decoded.append(file)
        return file

    def _take(self, digest: str, size: int, name: str, original: str | None, on_change: OnChange) -> None:
        self._on_change = on_change
        self._path = None
        self._name = name
        self._original = None if original is None else Path(original)
        self._digest = digest
        self._size = size
        self._opener = _local.opener

    @property
    def path(self) -> Path:
        """Where the content can be read. For the File of a job or a result: a read-only file."""
        if self._path is None:
            if self._opener is None:
                raise BadFile(
                    f"{self!r} is only a description here: read its path inside a task, or from the result of a job"
                )
            self._path = self._opener(self)
        return self._path

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self._name

    @property
    def digest(self) -> str:
        """The sha256 digest of the content, as `sha256sum` prints it."""
        if self._digest is None:
            self._digest, self._size = digest_of(self.path)
        return self._digest

    @property
    def size(self) -> int:
        """How many bytes the content has."""
        return self._size if self.digest else 0

    @property
    def on_change(self) -> OnChange:
        """What a job does if the original has changed since."""
        return self._on_change

    @property
    def original(self) -> Path | None:
        """Where the file was when it was submitted, if `on_change` needs to know."""
        return self._original

    def described(self) -> dict[str, object]:
        """What is stored of it. Made once, because a sweep may encode it for every point; nobody may change it."""
        made = self.__dict__.get("_described")
        if made is None or made["sha256"] != self._digest:
            made = {"sha256": self.digest, "size": self.size, "name": clean(self._name)}
            if self._on_change != "pin" and self._original is not None:
                made |= {"on_change": self._on_change, "from": clean(str(self._original))}
            self._described = made
        return made

    def use(self, path: Path, digest: str, size: int) -> None:
        """Read this content from now on."""
        self._path, self._digest, self._size = path, digest, size

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        if self._digest is None:
            return f"File({str(self._path)!r})"
        return f"<File {clean(self._name)} sha256:{self._digest[:12]}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, File):
            return NotImplemented
        return self is other or (self._name == other._name and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash((File, self._name))  # without the digest, so that nothing is read


class Content(Struct, frozen=True):
    """Something to be stored, under its digest."""

    digest: str
    size: int
    data: File | bytes


class _Local(threading.local):
    """What this thread encodes or decodes for."""

    contents: dict[str, Content] | None = None
    decoded: list[File] | None = None
    opener: Callable[[File], Path] | None = None
    load: Callable[[str], bytes] | None = None


_local: Final = _Local()


@contextlib.contextmanager
def collecting() -> Iterator[dict[str, Content]]:
    """Collect what must be stored for the values that this thread encodes in the block, by digest."""
    before, _local.contents = _local.contents, {}
    try:
        yield _local.contents
    finally:
        _local.contents = before


@contextlib.contextmanager
def opening(opener: Callable[[File], Path], load: Callable[[str], bytes]) -> Iterator[list[File]]:
    """Bind the Files that this thread decodes in the block to `opener`, which finds their paths, and list them. `load`
    returns the content of what is decoded at once."""
    before = _local.opener, _local.load, _local.decoded
    _local.opener, _local.load, _local.decoded = opener, load, []
    try:
        yield _local.decoded
    finally:
        _local.opener, _local.load, _local.decoded = before


def is_collecting() -> bool:
    """Whether contents can be stored for what this thread encodes."""
    return _local.contents is not None


def write_file(file: File) -> dict[str, object]:
    """What is stored of a File. The path of the original only if `on_change` needs it, so that equal content is equal
    arguments wherever the file is."""
    if _local.contents is not None:
        _local.contents[file.digest] = Content(file.digest, file.size, file)
    elif file._digest is None:  # noqa: SLF001 - of this module
        raise NotStored(
            f"{file!r} cannot be stored here: pass it as an argument of a task or return it from one, "
            "as it is or inside lists, dicts and dataclasses"
        )
    return file.described()


def write_content(data: bytes, what: str) -> dict[str, object]:
    """What is stored of a value whose content is these bytes. `what` names the value in errors."""
    if _local.contents is None:
        raise NotStored(f"{what} cannot be stored here: pass it as an argument of a task or return it from one")
    digest = hashlib.sha256(data).hexdigest()
    _local.contents[digest] = Content(digest, len(data), data)
    return {"sha256": digest, "size": len(data)}


def read_file(described: Mapping[str, Any]) -> File:
    """The File of a description. Raises ValueError, TypeError or LookupError if it is not one."""
    on_change = described.get("on_change", "pin")
    original = described.get("from")
    name, size = described["name"], described["size"]
    if on_change not in get_args(OnChange) or not isinstance(name, str) or not isinstance(size, int):
        raise ValueError
    if original is not None and not isinstance(original, str):
        raise ValueError
    return File.stored(checked_digest(described), size, name, original, on_change)


def read_content(described: Mapping[str, Any]) -> bytes:
    """The bytes of a described value."""
    digest = checked_digest(described)
    if _local.contents is not None and digest in _local.contents:  # compared with the original while it is encoded
        kept = _local.contents[digest].data
        if isinstance(kept, bytes):
            return kept
    if _local.load is None:
        raise BadFile(f"the content sha256:{digest} is not fetched here")
    return _local.load(digest)


def checked_digest(described: Mapping[str, Any]) -> str:
    digest = described["sha256"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError
    return digest

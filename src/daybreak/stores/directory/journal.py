"""The journal: a file of checksummed records, each written and synced before its operation is answered.

A record is its length, its checksum and its content. The file is allocated in advance, so that a full disk is found
before anything is changed; zeros follow the last record. A record that was written in part ends the journal."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from daybreak.core.errors import StoreCorrupt
from daybreak.stores.directory.changes import Change
from daybreak.stores.directory.disk import Disk

_HEADER: Final = struct.Struct("<II")
ALLOCATED: Final = 256 * 1024  # bytes that are reserved at once
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Change)


class Journal:
    """The journal at `path`. `size` is the length of its records."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._descriptor: int | None = None
        self._allocated = 0
        self.size = 0

    def read(self) -> Iterator[Change]:
        """The records that are there, in order."""
        self.size = 0
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        while at + _HEADER.size <= len(data):
            length, checksum = _HEADER.unpack_from(data, at)
            content = data[at + _HEADER.size : at + _HEADER.size + length]
            if not length or zlib.crc32(content) != checksum:
                self._refuse_damage(data, at + _HEADER.size + length)
                return
            yield _decoder.decode(content)
            at += _HEADER.size + length
            self.size = at

    def _refuse_damage(self, data: bytes, at: int) -> None:
        """A record that was written in part is the last one. If another follows, an answered change is damaged."""
        if at + _HEADER.size > len(data):
            return
        length, checksum = _HEADER.unpack_from(data, at)
        if length and zlib.crc32(data[at + _HEADER.size : at + _HEADER.size + length]) == checksum:
            raise StoreCorrupt(
                f"{self._path} is damaged before byte {at}: restore the folder from a backup, or move this file away "
                "to load the jobs as their files show them"
            )

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def resume(self) -> None:
        """Continue the journal after its last record; begin one if there is none."""
        self.close()
        if not self._path.exists():
            self.start()
            return
        self._descriptor = self._disk.open(self._path, os.O_RDWR)
        self._allocated = self._path.stat().st_size

    def start(self) -> None:
        """Begin an empty journal in place of the old one."""
        self.close()
        new = self._path.with_name(self._path.name + ".new")
        descriptor = self._disk.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._disk.allocate(descriptor, ALLOCATED)
            self._disk.sync(descriptor)
            self._disk.rename(new, self._path)
            self._disk.sync_folder(self._path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._allocated, self.size = descriptor, ALLOCATED, 0

    def reserve(self, size: int) -> None:
        """Make sure that so many bytes can be appended without more space on the disk."""
        needed = self.size + size
        if needed > self._allocated:
            allocated = (needed // ALLOCATED + 1) * ALLOCATED
            self._disk.allocate(self._open_descriptor, allocated)
            self._allocated = allocated

    def append(self, change: Change, *, sync: bool) -> None:
        """Write a record; with `sync` it is durable when this returns. After an error the record is not part of the
        journal if `withdraw` succeeds."""
        content = _encoder.encode(change)
        record = _HEADER.pack(len(content), zlib.crc32(content)) + content
        self.reserve(len(record) + _HEADER.size)
        self._disk.write_all(self._open_descriptor, record, self.size)
        if sync:
            self._disk.sync(self._open_descriptor)
        self.size += len(record)

    def withdraw(self) -> None:
        """Remove what a failed `append` left behind."""
        descriptor = self._open_descriptor
        self._disk.truncate(descriptor, self.size)
        self._allocated = self.size
        self._disk.sync(descriptor)

    @property
    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise OSError("the journal is not open")
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

"""The content of regular files: read piece by piece, hashed, and copied so that a crash leaves no half of a file."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from daybreak.core.errors import BadFile, StoreFull, StoreReadOnly, StoreUnavailable

PIECE: Final = 1024 * 1024
_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)  # with O_NONBLOCK, so that a named pipe without a writer is refused instead of waited for
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def pieces_of(path: Path, *, must_not_change: bool = True) -> Iterator[bytes]:
    """The content of a regular file, piece by piece. Raises BadFile if it cannot be read, or if it was changed or
    replaced while it was read."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise _not_regular(path, before.st_mode)
        count = 0
        while piece := os.read(descriptor, PIECE):
            count += len(piece)
            yield piece
        if must_not_change:
            _refuse_change(path, before, os.fstat(descriptor), count)
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)


def _refuse_change(path: Path, before: os.stat_result, after: os.stat_result, count: int) -> None:
    try:
        now = path.stat()
    except OSError:
        now = None
    if count == before.st_size and _identity(before) == _identity(after) and now and _identity(now) == _identity(after):
        return
    raise BadFile(f"{path} was changed or replaced while it was read: submit it again when no program writes it")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    # The change time too: a program can set the modification time back, but not this one.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _not_regular(path: Path, mode: int) -> BadFile:
    if stat.S_ISDIR(mode):
        return BadFile(f"{path} is a folder; a File is one file: pass its files one by one, or pack them into one")
    return BadFile(f"{path} is not a regular file, but a pipe, a socket or a device: copy its content to a file first")


def _unreadable(path: Path, error: OSError) -> BadFile:
    if isinstance(error, FileNotFoundError):
        return BadFile(f"there is no file {path}")
    if isinstance(error, IsADirectoryError):
        return _not_regular(path, stat.S_IFDIR)
    if isinstance(error, PermissionError) and path.is_dir():  # Windows does not open folders
        return _not_regular(path, stat.S_IFDIR)
    return BadFile(f"{path} cannot be read: {error.strerror or error}")


def digest_of(path: Path, *, must_not_change: bool = True) -> tuple[str, int]:
    """The sha256 digest of a file, as `sha256sum` prints it, and its size."""
    hashed, size = hashlib.sha256(), 0
    for piece in pieces_of(path, must_not_change=must_not_change):
        hashed.update(piece)
        size += len(piece)
    return hashed.hexdigest(), size


class NewFile:
    """A file with a random name that is being written. `finish` makes it durable; `discard` leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"new-{secrets.token_hex(8)}"
        self._hashed = hashlib.sha256()
        self.size = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
        except OSError as error:
            raise write_error(folder, error) from None

    def write(self, piece: bytes) -> None:
        try:
            _write_all(self._file.fileno(), piece)
        except OSError as error:
            self.discard()
            raise write_error(self.path.parent, error) from None
        self._hashed.update(piece)
        self.size += len(piece)

    def finish(self) -> str:
        """Make the file durable and read-only, and return the digest of its content."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.chmod(0o444)
        except OSError as error:
            self.discard()
            raise write_error(self.path.parent, error) from None
        return self._hashed.hexdigest()

    def discard(self) -> None:
        self._file.close()
        if os.name == "nt" and self.path.exists():
            self.path.chmod(0o600)  # Windows does not delete a read-only file
        self.path.unlink(missing_ok=True)


def write_new(folder: Path, pieces: Iterable[bytes]) -> tuple[NewFile, str]:
    """Write a new file, durably, and return it with the digest of its content. If that fails, nothing is left."""
    new = NewFile(folder)
    try:
        for piece in pieces:
            new.write(piece)
    except BaseException:
        new.discard()
        raise
    return new, new.finish()


def _write_all(descriptor: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(descriptor, left) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":
        return  # Windows cannot open a folder, and keeps its names in a journal
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(folder: Path, error: OSError) -> StoreFull | StoreReadOnly | StoreUnavailable:
    """What a failed write to a folder of files means."""
    if error.errno in _FULL:
        return StoreFull(
            f"no space left for files in {folder}: nothing of this file was stored; free some space, and try again"
        )
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return StoreReadOnly(f"files cannot be stored in {folder}: {error.strerror}; give this user write access to it")
    return StoreUnavailable(f"files cannot be stored in {folder}: {error.strerror or error}")

"""One file of a drop folder: its status, and its content read from an open descriptor."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from daybreak.core.units import bytes_text
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.system.file_content import PIECE

_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


class Fingerprint(Struct, frozen=True):
    """What identifies one state of one file."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> Fingerprint:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def text(self) -> str:
        """Which drop of a file this is: a file that was moved away and back has another one. Without the device, which
        differs between machines that share a folder."""
        return f"{self.inode:x}-{self.changed:x}"


class NotTaken(Exception):
    """An entry that is left alone, and why."""


class StillWritten(Exception):
    """A file that is not complete yet: it changed while it was read, or a program has it open for writing."""


def status_problem(status: os.stat_result, max_size: int) -> str:
    """Why an entry of this status is left alone; empty if it may be taken."""
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        return f"it is {_KINDS.get(kind, 'not a regular file')}"
    if _is_reparse_point(status):
        return "it is a link"
    if status.st_size > max_size:
        return f"it has {bytes_text(status.st_size)}, and the limit is {bytes_text(max_size)}"
    return ""


def _is_reparse_point(status: os.stat_result) -> bool:
    return bool(getattr(status, "st_reparse_tag", 0))


class OpenEntry:
    """A file that is open for reading. `digest` and `size` are known once it was hashed."""

    def __init__(self, descriptor: int, fingerprint: Fingerprint, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self.fingerprint = fingerprint
        self.digest = ""

    @property
    def size(self) -> int:
        return self.fingerprint.size

    @property
    def path(self) -> Path:
        """A path that leads to this very file, also if its name has been given to another one. Only Linux has one."""
        if sys.platform.startswith("linux"):
            return Path(f"/proc/self/fd/{self._descriptor}")
        return self._path

    def check(self, max_size: int) -> None:
        """Judge what was opened, which may not be what was looked at. Raises NotTaken or StillWritten."""
        status = os.fstat(self._descriptor)
        problem = status_problem(status, max_size)
        if problem:
            raise NotTaken(problem)
        if Fingerprint.of(status) != self.fingerprint or is_open_for_writing(self._descriptor):
            raise StillWritten

    def hash(self) -> None:
        """Hash the whole content. Raises StillWritten if the file changed meanwhile."""
        hashed, count = hashlib.sha256(), 0
        while piece := os.read(self._descriptor, PIECE):
            hashed.update(piece)
            count += len(piece)
            if count > self.size:
                break
        if count != self.size or Fingerprint.of(os.fstat(self._descriptor)) != self.fingerprint:
            raise StillWritten
        self.digest = hashed.hexdigest()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def open_entry(folder: FolderHandle, name: str, max_size: int) -> OpenEntry:
    """Open a file and judge it by its descriptor. Raises NotTaken, StillWritten, or FileNotFoundError."""
    before = folder.stat(name)
    problem = status_problem(before, max_size)
    if problem:
        raise NotTaken(problem)
    try:
        descriptor = folder.open_file(name)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotTaken(f"it cannot be read: {error.strerror or error}") from None
    opened = OpenEntry(descriptor, Fingerprint.of(before), folder.path / name)
    try:
        opened.check(max_size)
    except BaseException:
        opened.close()
        raise
    return opened


def is_open_for_writing(descriptor: int) -> bool:
    """Whether a program on this machine has the file open for writing. False where that cannot be told.

    Linux grants a read lease only on a file that nobody has open for writing. It is returned at once. Who opens the
    file for writing in that instant waits for the return, and this process gets a signal, which must be a harmless
    one."""
    if sys.platform != "linux":
        return False
    import fcntl  # noqa: PLC0415 - not on every platform

    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:  # another user's file, or a file system without leases
        return False
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False

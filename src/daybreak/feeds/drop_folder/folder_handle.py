"""One open folder. Everything in it is reached relative to its descriptor, so no swapped path leads out of it.

Windows has no descriptors of folders; there, paths are used and reparse points are refused by their type."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

_HAS_DIR_FD: Final = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_FILE: Final = (
    os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOCTTY", 0)
)  # fmt: skip
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_RENAME_NOREPLACE: Final = 1


class FolderHandle:
    """A folder, open for as long as the block lasts. Names are single components."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a folder that the user named. Here alone links are followed."""
        if not _HAS_DIR_FD:
            if not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
            return cls(path, None)
        return cls(path, os.open(path, _FOLDER))

    def open_folder(self, name: str, *, create: bool = False) -> FolderHandle:
        """Open a folder in this one. Raises OSError if it is a link or no folder."""
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._at(name), dir_fd=self._descriptor)
        if self._descriptor is None:
            if not stat.S_ISDIR(self.stat(name).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", name)
            return FolderHandle(self.path / name, None)
        return FolderHandle(self.path / name, os.open(name, _FOLDER | _NOFOLLOW, dir_fd=self._descriptor))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else str(self.path / name)

    # -- reading -------------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """The names in the folder, in no order. The list is never held as a whole."""
        with os.scandir(self.path if self._descriptor is None else self._descriptor) as entries:
            for entry in entries:
                yield entry.name

    def stat(self, name: str) -> os.stat_result:
        """The status of an entry itself, never of what it links to."""
        return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        try:
            self.stat(name)
        except OSError:
            return False
        return True

    def open_file(self, name: str) -> int:
        """A descriptor of an entry. A link is refused, and a named pipe is not waited for."""
        return os.open(self._at(name), _FILE, dir_fd=self._descriptor)

    def read(self, name: str, limit: int) -> bytes:
        """The content of a small regular file. Raises OSError if it is something else, or larger."""
        descriptor = self.open_file(name)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
                raise OSError(errno.EINVAL, f"not a regular file, or larger than {limit:,} B", name)
            return os.read(descriptor, limit + 1)
        finally:
            os.close(descriptor)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> None:
        """Write a small file whole: whoever sees it sees all of it. It replaces one of the same name."""
        new = f".daybreak-{secrets.token_hex(8)}"
        with self.new_file(new) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._at(new), self._at(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def new_file(self, name: str) -> BinaryIO:
        """A new file. Raises FileExistsError if there is one of this name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(self._at(name), flags, 0o644, dir_fd=self._descriptor), "wb")

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def rmdir(self, name: str) -> None:
        """Remove a folder in this one, if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(self._at(name), dir_fd=self._descriptor)

    def move(self, name: str, to: FolderHandle, new_name: str) -> None:
        """Rename an entry. Raises FileExistsError if there is one of the new name: nothing is ever replaced."""
        if self._descriptor is None or to._descriptor is None:
            (self.path / name).rename(to.path / new_name)  # Windows refuses to replace
            return
        if not _rename_exclusively(self._descriptor, name, to._descriptor, new_name):
            self._link_and_unlink(name, to, new_name)

    def _link_and_unlink(self, name: str, to: FolderHandle, new_name: str) -> None:
        """As `move`, for systems without an exclusive rename. A kill in between leaves both names, and the next move
        finds that they are one file."""
        try:
            os.link(
                name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=to._descriptor, follow_symlinks=False
            )  # fmt: skip
        except FileExistsError:
            here, there = self.stat(name), to.stat(new_name)
            if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
                raise
        except PermissionError:  # a file system without hard links
            if to.has(new_name):
                raise FileExistsError(errno.EEXIST, "there is one already", new_name) from None
            os.rename(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=to._descriptor)
            return
        os.unlink(name, dir_fd=self._descriptor)


def _rename_exclusively(source: int, name: str, target: int, new_name: str) -> bool:
    """Rename with RENAME_NOREPLACE. False if this system cannot."""
    if _renameat2 is None:
        return False
    if _renameat2(source, os.fsencode(name), target, os.fsencode(new_name), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):  # an old kernel, or a file system that does not know the flag
        return False
    raise OSError(number, os.strerror(number), name, None, new_name)


def _find_renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None


_renameat2: Final = _find_renameat2()

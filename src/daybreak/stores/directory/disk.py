"""The port to the file system: every step that can fail, or before which a process can be killed, is one method."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600  # arguments and results may be secret
FOLDER_MODE: Final = 0o700
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Disk:
    """The operations of the system, one each. Tests replace this class to let any one of them fail."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | _FLAGS, FILE_MODE)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes, at: int) -> int:
        os.lseek(descriptor, at, os.SEEK_SET)
        return os.write(descriptor, data)

    def allocate(self, descriptor: int, size: int) -> None:
        """Reserve space on the disk, so that a later write into it cannot find the disk full."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)  # noqa: PTH105 - the same call for every port

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)

    # -- made of the steps above ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int) -> Iterator[int]:
        descriptor = self.open(path, flags)
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def write_all(self, descriptor: int, data: bytes, at: int = 0) -> None:
        left = memoryview(data)
        while left:
            written = self.write(descriptor, bytes(left), at)
            left, at = left[written:], at + written

    def write_file(self, path: Path, data: bytes, *, by_way_of: Path, sync: bool = False) -> None:
        """Write a file under a temporary name, then give it its own: nobody ever sees half of it."""
        with self.opened(by_way_of, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            self.write_all(descriptor, data)
            if sync:
                self.sync(descriptor)
        self.rename(by_way_of, path)

    def sync_file(self, path: Path) -> None:
        """Make the content of a file durable. A file that is gone needs nothing."""
        try:
            with self.opened(path, os.O_RDONLY) as descriptor:
                self.sync(descriptor)
        except FileNotFoundError:
            return

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        if os.name != "nt":  # Windows cannot open a folder
            with self.opened(folder, os.O_RDONLY) as descriptor:
                self.sync(descriptor)

"""The owner lock: one process at a time uses a folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.directory.disk import FILE_MODE
from daybreak.system import platform

_BYTE: Final = 0


class OwnerLock:
    """The lock of one folder, from `take` to `release`: a record lock, which the kernel releases when the process ends,
    however it ends. Children do not inherit it. It does not tell two stores of one process apart, and closing any
    descriptor of the file drops it: `OpenFolder` sees to it that a process has only one."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._folder = folder
        self._file = file
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises StoreUnavailable, naming the holder, if another process has it."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _lock(self, descriptor: int) -> None:
        if not platform.lock_byte(descriptor, _BYTE, wait=False):
            raise self._taken(descriptor)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f" pid {os.getpid()}\n".encode())  # the lock is on the first byte

    def _taken(self, descriptor: int) -> StoreUnavailable:
        holder = platform.lock_holder(descriptor, _BYTE)
        if holder is None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                holder = int(self._file.read_text().split()[-1])
        named = "another process" if holder is None else f"process {holder}"
        return StoreUnavailable(
            f"{self._folder} is in use by {named}, and only one process at a time can use a directory store: stop that "
            "process first, or call the app there; if several processes need the jobs, move them to a SQLite store"
        )

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

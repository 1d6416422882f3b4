"""The owner lock: one process at a time uses a folder."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Final

from daybreak.core.errors import StoreUnavailable
from daybreak.stores.directory.disk import FILE_MODE
from daybreak.system import platform

_BYTE: Final = 0
# Record locks belong to a process: they do not tell two stores of one process apart, and closing any descriptor of the
# file drops the lock. So the folders that this process has open are also noted here.
_held: set[tuple[int, int]] = set()
_guard = threading.Lock()


class OwnerLock:
    """The lock of one folder, from `take` to `release`. The kernel releases it when the process ends, however it ends.
    Children do not inherit it."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._folder = folder
        self._file = file
        self._descriptor: int | None = None
        self._place: tuple[int, int] | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> None:
        """Raises StoreUnavailable, naming the holder, if another process or another store of this one has it."""
        about = self._file.parent.stat()
        place = (about.st_dev, about.st_ino)
        with _guard:
            if place in _held:
                raise StoreUnavailable(
                    f"{self._folder} is already open in this process (pid {os.getpid()}): use the app that opened it"
                )
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, FILE_MODE)
            try:
                self._lock(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            self._descriptor, self._place = descriptor, place
            _held.add(place)

    def _lock(self, descriptor: int) -> None:
        if not platform.lock_byte(descriptor, _BYTE, wait=False):
            raise self._taken(descriptor)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f" pid {os.getpid()}\n".encode())  # the lock is on the first byte

    def _taken(self, descriptor: int) -> StoreUnavailable:
        holder = platform.lock_holder(descriptor, _BYTE)
        if holder is None:
            with contextlib.suppress(OSError, ValueError):
                holder = int(self._file.read_text().split()[-1])
        named = "another process" if holder is None else f"process {holder}"
        return StoreUnavailable(
            f"{self._folder} is in use by {named}, and a directory store has one process at a time: stop that process, "
            "or ask it; if several processes need the jobs, use a SQLite store (daybreak move copies them)"
        )

    def release(self) -> None:
        with _guard:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)
            if self._place is not None:
                _held.discard(self._place)
                self._place = None


def _after_fork() -> None:
    global _guard  # noqa: PLW0603 - a thread of the parent may hold the old one
    _guard = threading.Lock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

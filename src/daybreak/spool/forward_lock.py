"""The lock of a spool's forwarder: of all programs that share a spool, one at a time forwards.

A record lock belongs to a process and ends with it, so a forwarder that is killed blocks nobody. A forwarder that is
stopped keeps the lock: if another took over, both could send."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from daybreak.stores.sqlite.faults import Translated
from daybreak.system import platform

_BYTE: Final = 0

_open: dict[Path, int] = {}  # the lock files of this process; closing one would drop its lock
_held: set[Path] = set()
_guard = threading.Lock()


class ForwardLock:
    """Taken by one forwarder at a time, over all processes and all apps of a process."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(f"{spool.name}-forward").absolute()
        self._is_ours = False
        self._pid = os.getpid()

    def take(self) -> bool:
        """Take the lock if it is free, or keep it. Returns whether this forwarder holds it."""
        with _guard, Translated(self._path):
            if self._is_ours and self._pid == os.getpid():
                return True
            if self._path in _held or not platform.lock_byte(_descriptor(self._path), _BYTE, wait=False):
                return False
            _held.add(self._path)
            self._is_ours, self._pid = True, os.getpid()
            return True

    def release(self) -> None:
        with _guard:
            if self._is_ours and self._pid == os.getpid():
                platform.unlock_byte(_open[self._path], _BYTE)
                _held.discard(self._path)
            self._is_ours = False


def _descriptor(path: Path) -> int:
    if path not in _open:
        _open[path] = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    return _open[path]


def _after_fork() -> None:
    # A child has none of its parent's locks, and must not wait for a mutex that another thread held at the fork.
    global _guard  # noqa: PLW0603
    _held.clear()
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

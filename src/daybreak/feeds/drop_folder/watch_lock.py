"""One active watcher per folder: the others stand by. It saves work; what is right is decided by the store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def watch_lock(folder: Path, name: str) -> Iterator[bool]:
    """Hold the lock of a watch for the time of the block. False if another process holds it. Where locks do not work,
    everybody gets it. The system releases it when the process ends, however it ends."""
    descriptor = _open(folder / f".daybreak-{hashlib.sha256(name.encode()).hexdigest()[:8]}.lock")
    if descriptor is None:
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    if sys.platform == "win32":
        return None
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl  # noqa: PLC0415 - not on every platform

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a mount without locks
        return True
    return True

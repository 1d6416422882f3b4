"""The write lock: one blocking record lock on a file beside the database, so that processes write in a fair order.

SQLite's own busy handler sleeps and retries, and starves the process that sleeps longest. A process that is stopped
while it holds the lock would block all others: after a while the waiting processes log its pid and kill it, which the
write-ahead log makes safe."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from daybreak.system import platform

_log = logging.getLogger("daybreak.sqlite")

# Bytes of the lock file. The holder of WRITE_BYTE writes; the holder of NEXT_BYTE is the next to get it.
WRITE_BYTE, NEXT_BYTE = 0, 1

_locks: dict[tuple[int, int], WriteLock] = {}
_locks_guard = threading.Lock()


class Verdict(NamedTuple):
    """`stuck`: holders to kill. `slow`: holders that run and have had the lock for long; each is named once."""

    stuck: list[int]
    slow: list[int]


class HolderWatch:
    """Watches the holders of the lock during one wait. A holder that was stopped at `checks` checks in a row is stuck.

    It counts checks, not time: if the whole machine was suspended, or all processes were stopped, much time passes
    between two checks, and the holder must get its chance to continue."""

    def __init__(self, checks: int) -> None:
        self._checks = checks
        self._made = 0
        self._stopped: dict[int, int] = {}
        self._named = False

    def check(self, holders: dict[int, bool]) -> Verdict:
        """Take note of the current holders, each with whether it is stopped."""
        self._made += 1
        self._stopped = {pid: self._stopped.get(pid, 0) + 1 for pid, is_stopped in holders.items() if is_stopped}
        stuck = [pid for pid, times in self._stopped.items() if times >= self._checks]
        slow = []
        if self._made >= self._checks and not self._named:
            slow = [pid for pid, is_stopped in holders.items() if not is_stopped]
            self._named = bool(slow)
        return Verdict(stuck, slow)


class WriteLock:
    """Taken by `with lock.in_process, lock:`, first among the threads of this process, then among processes.

    Record locks belong to a process, so all stores of one process on one file share this object. There are two steps
    because Ctrl-C may interrupt between any two lines of Python: a plain lock is released even then, and
    `release_after_interrupt` releases what is left of the second step."""

    def __init__(self, path: Path, fd: int) -> None:
        self.in_process = threading.Lock()
        self._path = path
        self._fd = fd
        self._waiting_since: float | None = None
        self._stuck_after = timedelta(seconds=10)
        self._watcher: threading.Thread | None = None
        self._contended = threading.Event()
        self._users = 0

    def __enter__(self) -> None:
        # A process that the kernel wakes for a lock must still race for it, and on a busy machine the same ones win.
        # NEXT_BYTE is released only by a process that holds WRITE_BYTE, so each waiter is at most one step from it.
        self._lock(NEXT_BYTE)
        try:
            self._lock(WRITE_BYTE)
        finally:
            platform.unlock_byte(self._fd, NEXT_BYTE)

    def __exit__(self, *_: object) -> None:
        platform.unlock_byte(self._fd, WRITE_BYTE)

    def enter_if_free(self) -> bool:
        """Take the lock if no other process holds it or waits for it. Released by `__exit__`."""
        if not platform.lock_byte(self._fd, NEXT_BYTE, wait=False):
            return False
        try:
            return platform.lock_byte(self._fd, WRITE_BYTE, wait=False)
        finally:
            platform.unlock_byte(self._fd, NEXT_BYTE)

    def release_after_interrupt(self) -> None:
        """Release what an interrupted thread may still hold."""
        with self.in_process:
            self._waiting_since = None
            for byte in (WRITE_BYTE, NEXT_BYTE):
                platform.unlock_byte(self._fd, byte)

    def _lock(self, byte: int) -> None:
        if platform.lock_byte(self._fd, byte, wait=False):
            return
        self._waiting_since = time.monotonic()
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="daybreak-write-lock", daemon=True)
            self._watcher.start()
        self._contended.set()
        try:
            platform.lock_byte(self._fd, byte)
        finally:
            self._waiting_since = None

    def _watch(self) -> None:
        """Check the holder of the lock during a long wait; sleep while nobody waits."""
        while self._users:
            self._contended.wait()
            self._contended.clear()
            since = self._waiting_since
            seconds = self._stuck_after.total_seconds()
            step = min(seconds / 4, 1)
            watch = HolderWatch(math.ceil(seconds / step))
            while since is not None and self._waiting_since == since and self._users:
                time.sleep(step)
                if self._waiting_since == since:
                    self._check_holders(watch)

    def _check_holders(self, watch: HolderWatch) -> None:
        with contextlib.suppress(OSError):  # the lock file was closed meanwhile
            found = {platform.lock_holder(self._fd, byte) for byte in (WRITE_BYTE, NEXT_BYTE)}
            holders = {pid: platform.is_stopped(pid) for pid in found if pid is not None and pid != os.getpid()}
            verdict = watch.check(holders)
            for holder in verdict.stuck:
                _log.warning("%s: killing process %d, which is stopped and holds the write lock", self._path, holder)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    platform.end_process(holder)
            for holder in verdict.slow:
                _log.warning("%s: still waiting for process %d, which holds the write lock", self._path, holder)

    def use(self, stuck_after: timedelta) -> None:
        """Count one more store that uses this lock; the shortest `stuck_after` applies."""
        self._users += 1
        self._stuck_after = min(self._stuck_after, stuck_after)

    def close(self) -> None:
        with _locks_guard:
            self._users -= 1
            if self._users == 0:
                for identity in [key for key, lock in _locks.items() if lock is self]:
                    del _locks[identity]
                self._contended.set()
                os.close(self._fd)


def write_lock_for(path: Path, stuck_after: timedelta) -> WriteLock:
    """The write lock on this lock file, shared by all stores of this process that use it."""
    with _locks_guard:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        # Closing any descriptor of a file drops all record locks of this process on it, so it is opened only once.
        lock = None
        if path.exists():
            lock = _locks.get(_identity(path))
        if lock is None:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            lock = WriteLock(path, fd)
            _locks[_identity(path)] = lock
        lock.use(stuck_after)
        return lock


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


def _after_fork() -> None:
    # A child has none of its parent's locks, and must not wait for a mutex that another thread held at the fork.
    global _locks_guard  # noqa: PLW0603
    _locks.clear()
    _locks_guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

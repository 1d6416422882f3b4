"""Whose turn it is to write: one blocking record lock on a side file, so that processes wait in a fair line.

SQLite's own busy handler sleeps and retries, and starves whoever sleeps longest. A process that is stopped inside its
turn would hold up everyone: after a while the waiters name it and end it, which the write-ahead log makes safe."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

from daybreak.system import platform

_log = logging.getLogger("daybreak.sqlite")

ROOM, DOOR = 0, 1  # bytes of the side file

_turns: dict[tuple[int, int], WriteLock] = {}
_turns_lock = threading.Lock()


class WriteLock:
    """Taken by `with turn.here, turn:`, first among the threads of this process, then among processes.

    Record locks belong to a process, so within one process all stores of a file share one turn. There are two steps
    because a Ctrl-C may come between any two lines of Python: a plain lock is let go of even then, and what is left of
    the second step is set right by `mend`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.here = threading.Lock()
        self._path = path
        self._fd = fd
        self._waiting_since: float | None = None
        self._stuck_after = timedelta(seconds=10)
        self._watcher: threading.Thread | None = None
        self._contended = threading.Event()
        self._users = 0

    def __enter__(self) -> None:
        # Who is woken for a lock must still race for it, and a busy machine lets the same ones win. Behind a door
        # that is let go only with the turn in hand, each stands at most one place from it.
        self._lock(DOOR)
        try:
            self._lock(ROOM)
        finally:
            platform.unlock_byte(self._fd, DOOR)

    def __exit__(self, *_: object) -> None:
        platform.unlock_byte(self._fd, ROOM)

    def enter_if_free(self) -> bool:
        """Take the turn if no other process has it or stands at the door; to be left as any other."""
        if not platform.lock_byte(self._fd, DOOR, wait=False):
            return False
        try:
            return platform.lock_byte(self._fd, ROOM, wait=False)
        finally:
            platform.unlock_byte(self._fd, DOOR)

    def mend(self) -> None:
        """Let go of what someone still held who was torn out of the turn."""
        with self.here:
            self._waiting_since = None
            for byte in (ROOM, DOOR):
                platform.unlock_byte(self._fd, byte)

    def _lock(self, byte: int) -> None:
        if platform.lock_byte(self._fd, byte, wait=False):
            return
        self._waiting_since = time.monotonic()
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="daybreak-turn", daemon=True)
            self._watcher.start()
        self._contended.set()
        try:
            platform.lock_byte(self._fd, byte)
        finally:
            self._waiting_since = None

    def _watch(self) -> None:
        """Looks after a wait that lasts; sleeps while there is none."""
        while self._users:
            self._contended.wait()
            self._contended.clear()
            since = self._waiting_since
            step = self._stuck_after.total_seconds() / 4
            named = False
            while since is not None and self._waiting_since == since and self._users:
                time.sleep(min(step, 1))
                if time.monotonic() - since >= self._stuck_after.total_seconds() and self._waiting_since == since:
                    named = self._look(named)

    def _look(self, named: bool) -> bool:
        with contextlib.suppress(OSError):  # closed meanwhile
            for holder in {platform.lock_holder(self._fd, byte) for byte in (ROOM, DOOR)} - {None, os.getpid()}:
                assert holder is not None
                if platform.is_stopped(holder):
                    _log.warning("%s: process %d was stopped inside its turn to write and is ended", self._path, holder)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        platform.end_process(holder)
                elif not named:
                    _log.warning("%s: waiting for process %d, whose turn to write is long", self._path, holder)
        return True

    def use(self, stuck_after: timedelta) -> None:
        self._users += 1
        self._stuck_after = min(self._stuck_after, stuck_after)

    def close(self) -> None:
        with _turns_lock:
            self._users -= 1
            if self._users == 0:
                for identity in [key for key, turn in _turns.items() if turn is self]:
                    del _turns[identity]
                self._contended.set()
                os.close(self._fd)


def turn_for(path: Path, stuck_after: timedelta) -> WriteLock:
    """The turn of a file, shared by every store of this process that has it open."""
    with _turns_lock:
        # Closing any descriptor of a file drops all record locks of this process on it: one is opened, once.
        path.parent.mkdir(mode=0o700, exist_ok=True)
        turn = _turns.get(_identity(path)) if path.exists() else None
        if turn is None:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            turn = WriteLock(path, fd)
            _turns[_identity(path)] = turn
        turn.use(stuck_after)
        return turn


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


def _after_fork() -> None:
    # A child has none of its parent's locks and must not wait on mutexes that another thread held at the fork.
    global _turns_lock  # noqa: PLW0603
    _turns.clear()
    _turns_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

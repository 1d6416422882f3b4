"""The write-ahead log: moved into the file now and then, and long enough from early on."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Final

import apsw

from daybreak.stores.sqlite.write_lock import WriteLock

_log = logging.getLogger("daybreak.sqlite")

CHECKPOINT_PAGES: Final = 1000
TRUNCATE_PAGES: Final = 16_000
GROWN_AT: Final = 64  # pages; who writes less leaves no long log behind
ROOM: Final = (CHECKPOINT_PAGES + CHECKPOINT_PAGES // 5) * (4096 + 24)  # bytes of pages with their heads


class Log:
    """`may_grow` False: the file is reached in a way of its own, and is left alone."""

    def __init__(self, path: Path, turn: WriteLock, *, may_grow: bool) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._turn = turn
        self._pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._may_grow = may_grow
        self._grow_at: int | None = GROWN_AT if may_grow else None
        self._truncated_at = 0.0
        self._warn_at = 4 * TRUNCATE_PAGES

    def watch(self, db: apsw.Connection) -> None:
        db.pragma("journal_size_limit", 64 * 1024 * 1024)
        db.wal_autocheckpoint(0)  # a hook too, which ours replaces
        db.set_wal_hook(self._wrote)

    def _wrote(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:  # the log has started over
            self._checkpoint_at = CHECKPOINT_PAGES
        self._pages = pages
        return apsw.SQLITE_OK

    @property
    def wants_tending(self) -> bool:
        return self._pages >= self._checkpoint_at or (self._grow_at is not None and self._pages >= self._grow_at)

    def tend(self, db: apsw.Connection, is_same: Callable[[], bool]) -> None:
        """After the answers went out, so that nobody waits for it. `is_same`: whether the file at the path is still the
        one that is open."""
        if not self.wants_tending:
            return
        with contextlib.suppress(apsw.Error), self._turn.here, self._turn:
            if self._grow_at is not None:
                self._grow_at = None
                self._grow(db, is_same)
            if self._pages >= self._checkpoint_at:
                self._checkpoint(db)

    def _grow(self, db: apsw.Connection, is_same: Callable[[], bool]) -> None:
        """Give the log its length at once. A sync of what lies within a file's length need not note a new length, which
        takes twice as long; and SQLite knows its own frames from whatever lies behind them."""
        db.execute("BEGIN IMMEDIATE")  # nobody else may add to the log meanwhile, other programs included
        try:
            with contextlib.suppress(OSError), self._wal.open("r+b", buffering=0) as file:
                if is_same():
                    _lengthen(file)
        finally:
            db.execute("ROLLBACK")

    def _checkpoint(self, db: apsw.Connection) -> None:
        pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # A long reader keeps the log from starting over; asking at every commit would not help.
        self._checkpoint_at = pages + CHECKPOINT_PAGES
        if pages > TRUNCATE_PAGES and time.monotonic() - self._truncated_at > 1:
            self._truncated_at = time.monotonic()
            self._truncate(db, pages)

    def _truncate(self, db: apsw.Connection, pages: int) -> None:
        db.set_busy_timeout(0)
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            if pages > self._warn_at:
                self._warn_at = pages * 2
                _log.warning(
                    "%s: a reader has kept the write-ahead log from starting over, it is now %d MB; look for a program "
                    "that holds the file open in a long transaction, or a process that was stopped",
                    self._path,
                    pages // 256,
                )
        else:
            self._warn_at = 4 * TRUNCATE_PAGES
            self._grow_at = GROWN_AT if self._may_grow else None
        finally:
            db.set_busy_timeout(5000)


def _lengthen(log: FileIO) -> None:
    at = log.seek(0, os.SEEK_END)
    if at >= ROOM:
        return
    try:
        if log.write(bytes(ROOM - at)) < ROOM - at:
            log.truncate(at)
        os.fsync(log.fileno())
    except OSError:  # a disk that is nearly full has better use for its last bytes
        log.truncate(at)
        raise

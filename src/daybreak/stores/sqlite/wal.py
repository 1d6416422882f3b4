"""The write-ahead log: checkpoints, and a file that has its full length from early on."""

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
PREALLOCATE_AT: Final = 64  # pages; a program that writes less leaves no long log behind
PREALLOCATED_BYTES: Final = (CHECKPOINT_PAGES + CHECKPOINT_PAGES // 5) * (4096 + 24)  # pages with their headers


class WriteAheadLog:
    """Checkpoints the log of one database, and preallocates it unless `may_preallocate` is False: a custom VFS may not
    keep the log in a plain file."""

    def __init__(self, path: Path, write_lock: WriteLock, *, may_preallocate: bool) -> None:
        self._path = path
        self._wal = path.with_name(path.name + "-wal")
        self._write_lock = write_lock
        self._pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._may_preallocate = may_preallocate
        self._preallocate_at: int | None = PREALLOCATE_AT if may_preallocate else None
        self._truncated_at = 0.0
        self._warn_at = 4 * TRUNCATE_PAGES

    def watch(self, db: apsw.Connection) -> None:
        """Count the pages that this connection writes."""
        db.pragma("journal_size_limit", 64 * 1024 * 1024)
        db.wal_autocheckpoint(0)  # replaced by the hook below
        db.set_wal_hook(self._wrote)

    def _wrote(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._pages:  # SQLite started the log over
            self._checkpoint_at = CHECKPOINT_PAGES
        self._pages = pages
        return apsw.SQLITE_OK

    @property
    def needs_maintenance(self) -> bool:
        if self._pages >= self._checkpoint_at:
            return True
        return self._preallocate_at is not None and self._pages >= self._preallocate_at

    def maintain(self, db: apsw.Connection, is_same_file: Callable[[], bool]) -> None:
        """Preallocate and checkpoint the log if that is due. Called after the answers are out, so that no caller waits
        for it. `is_same_file` says whether the file at the path is still the one that is open."""
        if not self.needs_maintenance:
            return
        with contextlib.suppress(apsw.Error), self._write_lock.in_process, self._write_lock:
            if self._preallocate_at is not None:
                self._preallocate_at = None
                self._preallocate(db, is_same_file)
            if self._pages >= self._checkpoint_at:
                self._checkpoint(db)

    def _preallocate(self, db: apsw.Connection, is_same_file: Callable[[], bool]) -> None:
        """Write the log's full length at once. A sync within a file's length need not record a new length, and so takes
        half the time. SQLite tells its own frames from the bytes behind them."""
        db.execute("BEGIN IMMEDIATE")  # so that no other program appends to the log meanwhile
        try:
            with contextlib.suppress(OSError), self._wal.open("r+b", buffering=0) as file:
                if is_same_file():
                    _lengthen(file)
        finally:
            db.execute("ROLLBACK")

    def _checkpoint(self, db: apsw.Connection) -> None:
        pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # A long read transaction keeps the log from starting over; a checkpoint at every commit would not help.
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
                    "%s: the write-ahead log has grown to %d MB, because a reader keeps it from starting over; look "
                    "for a program with a long read transaction, or a stopped process",
                    self._path,
                    pages // 256,
                )
        else:
            self._warn_at = 4 * TRUNCATE_PAGES
            if self._may_preallocate:
                self._preallocate_at = PREALLOCATE_AT
        finally:
            db.set_busy_timeout(5000)


def _lengthen(log: FileIO) -> None:
    at = log.seek(0, os.SEEK_END)
    if at >= PREALLOCATED_BYTES:
        return
    try:
        if log.write(bytes(PREALLOCATED_BYTES - at)) < PREALLOCATED_BYTES - at:
            log.truncate(at)
        os.fsync(log.fileno())
    except OSError:  # leave the last bytes of a nearly full disk to the jobs
        log.truncate(at)
        raise

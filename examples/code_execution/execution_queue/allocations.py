"""What the pods of all executions may use together: a small ledger in SQLite, so that nothing is promised twice."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from daybreak import Transient


class Allocations:
    """Memory that is promised to sagas. Both changes may be repeated."""

    def __init__(self, path: Path, memory_mb: int) -> None:
        self._path = path
        self._memory_mb = memory_mb

    def allocate(self, saga: str, memory_mb: int) -> None:
        """Promise memory to a saga, once. Raises Transient if too little is left."""
        with self._changes() as ledger:
            [(used,)] = ledger.execute("SELECT coalesce(sum(memory_mb), 0) FROM allocation WHERE saga != ?", (saga,))
            if used + memory_mb > self._memory_mb:
                raise Transient(f"{used} of {self._memory_mb} MB are promised, and {memory_mb} more are needed")
            ledger.execute("INSERT OR IGNORE INTO allocation VALUES (?, ?)", (saga, memory_mb))

    def release(self, saga: str) -> None:
        with self._changes() as ledger:
            ledger.execute("DELETE FROM allocation WHERE saga = ?", (saga,))

    def held(self) -> dict[str, int]:
        """What is promised now, by saga."""
        with self._changes() as ledger:
            return dict(ledger.execute("SELECT saga, memory_mb FROM allocation").fetchall())

    @contextlib.contextmanager
    def _changes(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as ledger:
            ledger.execute("BEGIN IMMEDIATE")
            try:
                ledger.execute("CREATE TABLE IF NOT EXISTS allocation (saga TEXT PRIMARY KEY, memory_mb INTEGER)")
                yield ledger
            except BaseException:
                ledger.execute("ROLLBACK")
                raise
            ledger.execute("COMMIT")

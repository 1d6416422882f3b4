"""Vacuums the tables `ready` and `delayed` after this process has deleted many rows from them.

A claimed job leaves a dead entry at the head of an index, and every claim steps over it until the table is vacuumed.
Autovacuum looks once a minute, in which hundreds of thousands of jobs may have been claimed."""

from __future__ import annotations

import threading
import time
from typing import Final

from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.system import patience

VACUUM_AFTER: Final = 10_000  # rows that this process deleted
MIN_DEAD_ROWS: Final = 5_000  # fewer are not worth a vacuum
# With more dead rows a vacuum takes long or, under an old snapshot, frees nothing: that is left to autovacuum.
MAX_DEAD_ROWS: Final = 200_000
RETRY_AFTER: Final = 60.0  # seconds after a failed vacuum


class Vacuum:
    """Vacuums in its own thread on its own connection, which exist only while it runs: no caller waits for it."""

    def __init__(self, address: Address, clock: ServerClock, sql: Statements, watchdog: Watchdog) -> None:
        self._schema = address.schema
        self._sql = sql
        self._connection = Connection(address, clock)
        watchdog.watch(self._connection.answer_timer)
        self._deleted_rows = 0
        self._retry_at = 0.0
        self._is_closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, count: int) -> None:
        """This process deleted `count` more rows from `ready` and `delayed`."""
        self._deleted_rows += count
        if self._deleted_rows < VACUUM_AFTER:
            return
        with self._lock:
            if self._thread is not None or self._is_closed or time.monotonic() < self._retry_at:
                return
            self._deleted_rows = 0
            self._thread = threading.Thread(target=self._run, name="daybreak-pg-vacuum", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._thread = None

    def _run(self) -> None:
        patience.unbound()
        try:
            for (table,) in self._connection.query(
                self._sql.tables_to_vacuum, (self._schema, MIN_DEAD_ROWS, MAX_DEAD_ROWS)
            ):
                if not self._is_closed:
                    self._connection.execute(self._sql.text(f"vacuum_{table}"))
        except Exception:  # noqa: BLE001 - autovacuum does it, too
            self._retry_at = time.monotonic() + RETRY_AFTER
        finally:
            self._connection.close()
            with self._lock:
                self._thread = None

    def close(self) -> None:
        """Abort a running vacuum."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        while thread is not None and thread.is_alive():
            self._connection.answer_timer.abort()
            thread.join(0.1)

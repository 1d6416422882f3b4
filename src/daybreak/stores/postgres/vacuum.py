"""Dead rows, swept by whoever left them behind.

A job that leaves the line leaves its entry at the head of an index, where every claim steps over it until the table is
vacuumed. A server looks by itself once a minute, in which hundreds of thousands may have gone."""

from __future__ import annotations

import threading
import time
from typing import Final

from daybreak.stores.postgres.address import Address
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.link import Link
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.watchdog import Watchdog
from daybreak.system import patience

SWEEP_AFTER: Final = 10_000  # jobs that this process took out of line
FEWEST: Final = 5_000  # dead rows that are worth it
DEAD_ROWS_LIMIT: Final = (
    200_000  # with more of them it takes long or, under an old snapshot, is in vain: that is the server's own
)
RESTS_FOR: Final = 60.0  # seconds after one that failed


class Sweep:
    """On a connection of its own, in a thread of its own, which are there for that long: nobody waits for either."""

    def __init__(self, place: Address, clock: ServerClock, sql: Statements, watchdog: Watchdog) -> None:
        self._schema = place.schema
        self._sql = sql
        self._link = Link(place, clock)
        watchdog.watch(self._link.waiting)
        self._left = 0
        self._not_before = 0.0
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, left: int) -> None:
        """So many more jobs left the line of those that wait for their turn or their time."""
        self._left += left
        if self._left < SWEEP_AFTER:
            return
        with self._lock:
            if self._thread is not None or self._closed or time.monotonic() < self._not_before:
                return
            self._left = 0
            self._thread = threading.Thread(target=self._run, name="daybreak-pg-sweep", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # an interpreter that ends starts no more of them
                self._thread = None

    def _run(self) -> None:
        patience.unbound()
        try:
            for (table,) in self._link.ask(self._sql.to_sweep, (self._schema, FEWEST, DEAD_ROWS_LIMIT)):
                if not self._closed:
                    self._link.order(self._sql.text(f"sweep_{table}"))
        except Exception:  # noqa: BLE001 - the server sweeps, too
            self._not_before = time.monotonic() + RESTS_FOR
        finally:
            self._link.close()
            with self._lock:
                self._thread = None

    def close(self) -> None:
        """Whatever it is at is broken off."""
        with self._lock:
            self._closed = True
            thread = self._thread
        while thread is not None and thread.is_alive():
            self._link.waiting.break_off()
            thread.join(0.1)

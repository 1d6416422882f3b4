"""Nobody waits for ever: an answer that takes longer than it may is given up, and its connection with it.

TCP alone does not see a server that is there and does not answer, so a thread that never asks anything looks on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from daybreak.stores.postgres.driver import psycopg


class Waiting:
    """One who may be waiting for an answer of the server."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._on: Any = None

    @contextlib.contextmanager
    def on(self, db: psycopg.Connection[Any]) -> Iterator[None]:
        self.begin(db)
        try:
            yield
        finally:
            self.end()

    def begin(self, db: psycopg.Connection[Any]) -> None:
        self._on, self._since = db, time.monotonic()

    def end(self) -> None:
        self._since = self._on = None

    def break_off_if_since(self, then: float) -> None:
        since, db = self._since, self._on
        if since is not None and since < then and db is not None:
            with contextlib.suppress(psycopg.Error, OSError, ValueError):
                own = socket.socket(fileno=socket.dup(db.fileno()))
                own.shutdown(socket.SHUT_RDWR)
                own.close()


class Watchdog:
    def __init__(self, answer_within: timedelta) -> None:
        self._within = answer_within.total_seconds()
        self._watched: list[Waiting] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, waiting: Waiting) -> None:
        with self._lock:
            self._watched.append(waiting)
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="daybreak-pg-watchdog", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(min(2.0, self._within / 4)):
            then = time.monotonic() - self._within
            for waiting in list(self._watched):
                waiting.break_off_if_since(then)

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

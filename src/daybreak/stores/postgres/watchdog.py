"""Aborts calls that wait too long for an answer, and their connections with them.

TCP does not notice a server that is alive but does not answer, so a thread that itself never calls the server
checks."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from daybreak.stores.postgres.driver import psycopg

CHECK_INTERVAL: Final = 2.0  # seconds; a shorter timeout nudges the watchdog


class Watched(Protocol):
    """Something with a deadline. The watchdog sets `nudge`, to be called with a deadline that is earlier than usual."""

    nudge: Callable[[float], None]

    def check(self, now: float) -> float:
        """Abort what has waited too long; returns when to check again, by `time.monotonic`."""
        ...


def _ignore(_: float) -> None:
    pass


class AnswerTimer:
    """The timeout of one connection's current call. If it expires, the connection is shut down."""

    def __init__(self) -> None:
        self.nudge: Callable[[float], None] = _ignore
        self.expired_after: float | None = None  # seconds; None if the last call did not time out
        self._until = self._within = 0.0
        self._db: Any = None

    @contextlib.contextmanager
    def running(self, db: psycopg.Connection[Any], within: float = math.inf) -> Iterator[None]:
        self.start(db, within)
        try:
            yield
        finally:
            self.stop()

    def start(self, db: psycopg.Connection[Any], within: float) -> None:
        """The answer must come `within` so many seconds, or the connection is aborted."""
        self.expired_after = None
        self._within, self._until = within, time.monotonic() + within
        self._db = db
        if within < CHECK_INTERVAL:
            self.nudge(self._until)

    def stop(self) -> None:
        self._db = None

    def check(self, now: float) -> float:
        db, until = self._db, self._until
        if db is None:
            return math.inf
        if until <= now:
            self.expired_after = self._within
            self.abort()
            return math.inf
        return until

    def abort(self) -> None:
        if (db := self._db) is not None:
            with contextlib.suppress(psycopg.Error, OSError, ValueError):
                own = socket.socket(fileno=socket.dup(db.fileno()))
                own.shutdown(socket.SHUT_RDWR)
                own.close()


class Watchdog:
    """One thread that checks the deadlines of all that is watched."""

    def __init__(self) -> None:
        self._watched: list[Watched] = []
        self._is_closed = False
        self._nudged = threading.Event()
        self._next_check = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, watched: Watched) -> None:
        with self._lock:
            watched.nudge = self._nudge
            self._watched.append(watched)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="daybreak-pg-watchdog", daemon=True)
                self._thread.start()

    def forget(self, watched: Watched) -> None:
        with self._lock:
            self._watched.remove(watched)

    def _nudge(self, until: float) -> None:
        if until < self._next_check:
            self._nudged.set()

    def _run(self) -> None:
        while not self._is_closed:
            self._nudged.clear()
            now = time.monotonic()
            self._next_check = (
                now + CHECK_INTERVAL
            )  # set before the checks: a shorter call that starts meanwhile nudges
            self._next_check = min([self._next_check, *(watched.check(now) for watched in list(self._watched))])
            self._nudged.wait(max(self._next_check - time.monotonic(), 0.0))

    def close(self) -> None:
        self._is_closed = True
        self._nudged.set()
        if self._thread is not None:
            self._thread.join()

"""Nobody waits for ever: an answer that takes longer than it may is given up, and its connection with it.

TCP alone does not see a server that is there and does not answer, so a thread that never asks anything looks on."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from daybreak.stores.postgres.driver import psycopg

TICK: Final = 2.0  # seconds; who is given less than that says so


class Watched(Protocol):
    nudge: Callable[[float], None]

    def check(self, now: float) -> float:
        """Give up what has waited too long; when to look again, by `time.monotonic`."""
        ...


def _unwatched(_: float) -> None:
    pass


class Waiting:
    """One who may be waiting for an answer of the server."""

    def __init__(self) -> None:
        self.nudge: Callable[[float], None] = _unwatched
        self.given_up_after: float | None = None  # seconds, of the last question, if it was given up
        self._until = self._within = 0.0
        self._on: Any = None

    @contextlib.contextmanager
    def on(self, db: psycopg.Connection[Any], within: float = math.inf) -> Iterator[None]:
        self.begin(db, within)
        try:
            yield
        finally:
            self.end()

    def begin(self, db: psycopg.Connection[Any], within: float) -> None:
        """`within` so many seconds its answer has to come, or the connection is broken off."""
        self.given_up_after = None
        self._within, self._until = within, time.monotonic() + within
        self._on = db
        if within < TICK:
            self.nudge(self._until)

    def end(self) -> None:
        self._on = None

    def check(self, now: float) -> float:
        db, until = self._on, self._until
        if db is None:
            return math.inf
        if until <= now:
            self.given_up_after = self._within
            self.break_off()
            return math.inf
        return until

    def break_off(self) -> None:
        if (db := self._on) is not None:
            with contextlib.suppress(psycopg.Error, OSError, ValueError):
                own = socket.socket(fileno=socket.dup(db.fileno()))
                own.shutdown(socket.SHUT_RDWR)
                own.close()


class Watchdog:
    def __init__(self) -> None:
        self._watched: list[Watched] = []
        self._is_ended = False
        self._nudged = threading.Event()
        self._looks_at = 0.0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, watched: Watched) -> None:
        with self._lock:
            watched.nudge = self._nudge
            self._watched.append(watched)
            if self._thread is None and not self._is_ended:
                self._thread = threading.Thread(target=self._run, name="daybreak-pg-watchdog", daemon=True)
                self._thread.start()

    def forget(self, watched: Watched) -> None:
        with self._lock:
            self._watched.remove(watched)

    def _nudge(self, until: float) -> None:
        if until < self._looks_at:
            self._nudged.set()

    def _run(self) -> None:
        while not self._is_ended:
            self._nudged.clear()
            now = time.monotonic()
            self._looks_at = now + TICK  # before the look: who begins meanwhile, and is given less, nudges
            self._looks_at = min([self._looks_at, *(watched.check(now) for watched in list(self._watched))])
            self._nudged.wait(max(self._looks_at - time.monotonic(), 0.0))

    def close(self) -> None:
        self._is_ended = True
        self._nudged.set()
        if self._thread is not None:
            self._thread.join()

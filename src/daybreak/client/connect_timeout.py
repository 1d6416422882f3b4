"""The adaptive time limit of opening a connection to the store, derived from the connections of this process.

The durations of all processes are in the store, which cannot be read without a connection. So each process uses its own
durations, and saves them in the store afterwards, for display."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Final

from daybreak.core.units import moment
from daybreak.policy.durations import NO_DURATIONS, Hour, add_hours, hour_with, with_hour
from daybreak.policy.timeouts import DEFAULT_RULES, LimitRules, connect_limit
from daybreak.system.ports import World

SUBJECT: Final = "connection to the store"


class ConnectTimeout:
    """The `ConnectLimit` of one store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._durations = NO_DURATIONS
        self._late = 0  # the number of late connections in a row
        self._unsaved: tuple[timedelta, Hour] | None = None
        self._lock = threading.Lock()

    def seconds(self, base: timedelta) -> float:
        with self._lock:
            return connect_limit(base, self._durations, self._late).total_seconds()

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None:
        one = hour_with(seconds, late=late)
        with self._lock:
            self._late = self._late + 1 if late else 0
            self._durations = with_hour(self._durations, one, moment(self._world.wall()))
            self._unsaved = (
                (base, one) if self._unsaved is None else (self._unsaved[0], add_hours(self._unsaved[1], one))
            )

    @property
    def has_news(self) -> bool:
        return self._unsaved is not None

    def take_unsaved(self) -> dict[str, tuple[timedelta, LimitRules, Hour]]:
        """The durations since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, None
        return {} if unsaved is None else {SUBJECT: (unsaved[0], DEFAULT_RULES, unsaved[1])}

    def forked(self) -> None:
        """Reset in a forked child: the lock may be held by a thread of the parent, and the parent saves what it saw."""
        self._lock = threading.Lock()
        self._unsaved = None

"""How long opening a connection to the store may take, by what this process has seen of it.

What all processes have seen stands in the store, which cannot be read before there is a connection: so each keeps its
own, and the store is told afterwards, for people to see."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Final

from daybreak.core.units import moment
from daybreak.policy.durations import NO_DURATIONS, Hour, add_hours, hour_with, with_hour
from daybreak.policy.timeouts import connect_limit
from daybreak.system.ports import World

SUBJECT: Final = "connection to the store"


class ConnectTimeout:
    """The `ConnectLimit` of one store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._durations = NO_DURATIONS
        self._late = 0  # in a row
        self._untold: tuple[timedelta, Hour] | None = None
        self._lock = threading.Lock()

    def seconds(self, base: timedelta) -> float:
        with self._lock:
            return connect_limit(base, self._durations, self._late).total_seconds()

    def took(self, base: timedelta, seconds: float, *, late: bool = False) -> None:
        one = hour_with(seconds, late=late)
        with self._lock:
            self._late = self._late + 1 if late else 0
            self._durations = with_hour(self._durations, one, moment(self._world.wall()))
            self._untold = (base, one) if self._untold is None else (self._untold[0], add_hours(self._untold[1], one))

    @property
    def has_news(self) -> bool:
        return self._untold is not None

    def take_untold(self) -> dict[str, tuple[timedelta, Hour]]:
        """What was seen since this was last asked."""
        with self._lock:
            untold, self._untold = self._untold, None
        return {} if untold is None else {SUBJECT: untold}

    def forked(self) -> None:
        """In a forked child: whoever held the lock stayed with the parent, who tells what was seen until now."""
        self._lock = threading.Lock()
        self._untold = None

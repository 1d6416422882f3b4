"""Wake-ups inside one process: a commit wakes the watches whose topics it changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta

ANY = "*"  # the topic for "something changed": wakes every watch

_hubs: weakref.WeakSet[Wakeups] = weakref.WeakSet()


class HubWatch:
    """A watch on some topics, used on the event loop that opened it."""

    def __init__(self, hub: Wakeups, topics: frozenset[str]) -> None:
        self.topics = topics
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._is_woken = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._on_wake: Callable[[], None] | None = None

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - part of the seam
        # A time-out is no error here: the caller looks at the store either way. This uses a future and a timer, because
        # asyncio.timeout costs more, and every job that reaches an idle worker pays for it.
        if not self._is_woken:
            woken = self._loop.create_future()
            self._waiting.add(woken)
            timer = self._loop.call_later(timeout.total_seconds(), _resolve, woken)
            try:
                await woken
            finally:
                timer.cancel()
                self._waiting.discard(woken)
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def on_wake(self, call: Callable[[], None]) -> None:
        """Call this at every wake-up, on the watch's own loop."""
        self._on_wake = call

    def _woken(self) -> None:
        self._is_woken = True
        if self._on_wake is not None:
            self._on_wake()
        for waiting in self._waiting:
            _resolve(waiting)

    def wake(self) -> None:
        """Wake the waiters, from any thread."""
        try:
            is_own_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own_loop = False
        if is_own_loop:
            self._woken()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has closed, so nobody waits on it
                self._loop.call_soon_threadsafe(self._woken)

    def close(self) -> None:
        self._hub.forget(self)
        self._on_wake = None  # another thread may have a wake-up under way


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Wakeups:
    """The watches of one store in this process, by topic."""

    def __init__(self) -> None:
        # Dicts, not sets: watches wake in the order in which they were opened, so that a simulation is repeatable.
        self._watches: dict[str, dict[HubWatch, None]] = {}
        self._lock = threading.Lock()
        _hubs.add(self)

    def watch(self, topics: Iterable[str]) -> HubWatch:
        watch = HubWatch(self, frozenset(topics))
        with self._lock:
            for topic in watch.topics:
                self._watches.setdefault(topic, {})[watch] = None
        return watch

    def forget(self, watch: HubWatch) -> None:
        with self._lock:
            for topic in watch.topics:
                if (watching := self._watches.get(topic)) is not None:
                    watching.pop(watch, None)
                    if not watching:
                        del self._watches[topic]

    @property
    def is_watched(self) -> bool:
        return bool(self._watches)

    def wake(self, topics: Iterable[str]) -> None:
        if not self._watches:
            return
        with self._lock:
            changed = self._watches.keys() if ANY in topics else self._watches.keys() & set(topics)
            woken = dict.fromkeys(watch for topic in sorted(changed) for watch in self._watches[topic])
        for watch in woken:
            watch.wake()

    def leave(self) -> None:
        """Forget the parent's watches in a forked child. A thread of the parent may hold the old lock."""
        self._watches, self._lock = {}, threading.Lock()


def _after_fork() -> None:
    for hub in list(_hubs):
        hub.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

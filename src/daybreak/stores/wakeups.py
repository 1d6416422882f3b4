"""Wake-up inside one process: whoever commits tells the watches whose topics changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta

ANY = "*"  # something changed, nobody said what: wakes everyone

_hubs: weakref.WeakSet[Wakeups] = weakref.WeakSet()


class HubWatch:
    def __init__(self, hub: Wakeups, topics: frozenset[str]) -> None:
        self.topics = topics
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._is_woken = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._call: Callable[[], None] | None = None

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - part of the seam
        # An optional wake-up: it ends by itself, and the caller looks again either way. A future and a timer, because
        # every job that comes to an idle worker waits for this to go round.
        if not self._is_woken:
            woken = self._loop.create_future()
            self._waiting.add(woken)
            timer = self._loop.call_later(timeout.total_seconds(), _go_on, woken)
            try:
                await woken
            finally:
                timer.cancel()
                self._waiting.discard(woken)
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def on_wake(self, call: Callable[[], None]) -> None:
        self._call = call

    def _woken(self) -> None:
        self._is_woken = True
        if self._call is not None:
            self._call()
        for waiting in self._waiting:
            _go_on(waiting)

    def wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._woken()
        else:
            with contextlib.suppress(RuntimeError):  # its loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._woken)

    def close(self) -> None:
        self._hub.forget(self)
        self._call = None  # a wake-up may be on its way from another thread


def _go_on(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Wakeups:
    def __init__(self) -> None:
        # Dicts, not sets: watches wake in the order in which they were opened, so that a simulation can be repeated.
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
        """In a forked child: nobody watches here, and the lock may have been held by a thread that is not here."""
        self._watches, self._lock = {}, threading.Lock()


def _after_fork() -> None:
    for hub in list(_hubs):
        hub.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Wake-up inside one process: whoever commits tells the watches whose topics changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Iterable
from datetime import timedelta

ANY = "*"  # something changed, nobody said what: wakes everyone

_hubs: weakref.WeakSet[Hub] = weakref.WeakSet()


class HubWatch:
    def __init__(self, hub: Hub, topics: frozenset[str]) -> None:
        self.topics = topics
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109 - part of the seam
        # An optional wake-up: it ends by itself, and the caller looks again either way.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout.total_seconds()):
                await self._changed.wait()
        woken = self._changed.is_set()
        self._changed.clear()
        return woken

    def wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._changed.set()
        else:
            with contextlib.suppress(RuntimeError):  # its loop has closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._changed.set)

    def close(self) -> None:
        self._hub.forget(self)


class Hub:
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

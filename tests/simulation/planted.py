"""Known ways to get it wrong, each a small variant of the real thing. The simulation must notice every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest import mock

import msgspec
from harness import Parts

from daybreak.client.client import Client
from daybreak.core.errors import OutcomeUnknown
from daybreak.core.model import Lost, State
from daybreak.core.units import span
from daybreak.policy.settle import settle
from daybreak.services.reaper import Reaper
from daybreak.store.protocol import Feed
from daybreak.stores.memory import MemoryStore

replace = msgspec.structs.replace

Change = tuple[object, str, Any]  # of which class or module, which name, and what it becomes


@dataclass(frozen=True)
class Planted:
    name: str
    caught_by: set[str]
    within: int
    store: Callable[..., MemoryStore] = MemoryStore
    parts: Parts = field(default_factory=Parts)
    changes: tuple[Change, ...] = ()

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The changes are made to the real classes, and undone at the end."""
        with ExitStack() as stack:
            for owner, name, value in self.changes:
                stack.enter_context(mock.patch.object(owner, name, value))
            yield


# -- accepting ---------------------------------------------------------------------------------------------------------


class NewIdEachTime(Client):
    """The client makes a new id when it does not know whether the first was heard."""

    async def _insert(self, specs, within):
        try:
            return await self.store.insert(specs)
        except OutcomeUnknown:
            return await super()._insert([replace(spec, id=self._new_id()) for spec in specs], within)


# -- events and counts -------------------------------------------------------------------------------------------------


class SkippingFeed(MemoryStore):
    """The last event of a full page is on neither page."""

    async def events(self, after=None, limit=1000):
        feed = await super().events(after, min(limit, 5))
        if len(feed.events) == 5:
            return Feed(feed.events[:-1], feed.cursor, feed.cursors[:-1])
        return feed


class Miscounts(MemoryStore):
    """Suspended jobs are counted as queued."""

    async def count(self, *where: Any):
        return [
            replace(tally, state=State.QUEUED) if tally.state is State.SUSPENDED else tally
            for tally in await super().count(*where)
        ]


# -- services ----------------------------------------------------------------------------------------------------------


class Hasty(Reaper):
    """Counts the time of an outage as time watched."""

    def _watched_for(self, now):
        return timedelta(days=1)


class CountsHungCalls(Reaper):
    """The watch begins with the question. (A real one, found here.)"""

    def _watched_for(self, now):
        if self._watching_since is None or self._had_gap(now):
            self._watching_since = now
        return timedelta(microseconds=now - self._watching_since)

    def _record_contact(self, asked_at):
        self._last_contact = self._world.steady()


class Overlooks(Reaper):
    """Takes a silence of three of its pauses, each grown to twice its length, for the store's usual pace."""

    def _had_gap(self, now):
        return now - self._last_contact > span(6 * self._every)


class NeverSettles(Reaper):
    """Takes over and leaves it at that."""

    async def tick(self):
        store, self._store = self._store, _OnlyReaps(self._store)
        try:
            return await super().tick()
        finally:
            self._store = store


class _OnlyReaps:
    def __init__(self, store):
        self.reap = store.reap

    async def exchange(self, exchange):
        return None


class BlamesAnyone(Reaper):
    """Who was there at a death is to blame for it."""

    def _settlement_of(self, lease):
        return settle(lease, Lost(alone=True), chance=0.5, by=self._name)


class BlamesNobody(Reaper):
    """A job that kills every worker runs for ever."""

    def _settlement_of(self, lease):
        return settle(lease, Lost(), chance=0.5, by=self._name)


PLANTED = [
    Planted("a new id on every retry", {"I2", "I1", "I3"}, 30, parts=Parts(client=NewIdEachTime)),
    Planted("the feed skips", {"I9"}, 20, SkippingFeed),
    Planted("counts that are no recount", {"I24"}, 10, Miscounts),
    Planted("reaper counts outages as watched", {"P8"}, 20, parts=Parts(reaper=Hasty)),
    Planted("reaper counts hung calls as watched", {"P8"}, 150, parts=Parts(reaper=CountsHungCalls)),
    Planted("reaper overlooks a silence", {"P8"}, 30, parts=Parts(reaper=Overlooks)),
    Planted("reaper never settles", {"I1", "I20"}, 10, parts=Parts(reaper=NeverSettles)),
    Planted("reaper blames anyone", {"I15"}, 20, parts=Parts(reaper=BlamesAnyone)),
    Planted("reaper blames nobody", {"I1", "I14"}, 20, parts=Parts(reaper=BlamesNobody)),
]

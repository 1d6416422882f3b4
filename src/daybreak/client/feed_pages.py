"""Pages of the event feed for many readers in one process: readers at the same cursor share one read of the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from daybreak.client.feed_names import FeedNames
from daybreak.core.events import Event
from daybreak.core.units import span
from daybreak.store.protocol import EVENTS_TOPIC, LATEST, Store
from daybreak.system.ports import World

PAGE_SIZE: Final = 500
MAX_REMEMBERED_PAGES: Final = 64
READ_INTERVAL: Final = timedelta(milliseconds=50)  # readers that wait for news read at most this often
INTERVAL_PER_READER: Final = timedelta(microseconds=750)  # or less often, if there are many
MAX_READ_INTERVAL: Final = timedelta(milliseconds=150)
LOOK_AGAIN_AFTER: Final = timedelta(seconds=5)  # a wake-up may be lost


class FeedPage(Struct, frozen=True, eq=False, weakref=True):
    """Events with the names of their jobs, the cursor behind each of them, and the cursor behind all of them. Readers
    share a page, so what one of them derives from it can be kept for the others."""

    events: list[Event]
    cursors: list[str]
    cursor: str


class FeedPages:
    """Reads the feed for any number of readers, and only while there is one.

    A page with events is remembered for a while under the cursor that it was read from. So readers at the same cursor
    share one read, and a reader that reconnects after a short absence reads the remembered pages until it has caught
    up."""

    def __init__(self, store: Callable[[], Awaitable[Store]], world: World) -> None:
        self._open = store
        self._world = world
        self._names = FeedNames()
        self._pages: OrderedDict[str, FeedPage] = OrderedDict()
        self._reading: dict[str, asyncio.Task[FeedPage]] = {}
        self._waking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._news_at = 0
        self.readers = 0

    def join(self) -> None:
        """A reader begins. Each `join` needs a `leave`."""
        self.readers += 1
        if self._waking is None:
            self._waking = asyncio.create_task(self._wake_readers())

    async def leave(self) -> None:
        """A reader ends. After the last one nothing is read, watched or remembered."""
        self.readers -= 1
        if self.readers or self._waking is None:
            return
        waking, self._waking = self._waking, None
        waking.cancel()
        await asyncio.gather(waking, return_exceptions=True)
        self._pages.clear()

    async def latest(self) -> str:
        """The cursor behind everything that there is now."""
        return (await (await self._open()).events(LATEST)).cursor

    async def after(self, cursor: str) -> FeedPage:
        """The page behind a cursor; empty if nothing happened since. Raises CursorExpired."""
        page = self._pages.get(cursor)
        if page is not None:
            return page
        shared = self._reading
        reading = shared.get(cursor)
        if reading is None:
            reading = shared[cursor] = asyncio.create_task(self._read(cursor))
            reading.add_done_callback(lambda _: shared.pop(cursor, None))
        # Shielded: the other readers of this page go on when one of them is cancelled.
        return await asyncio.shield(reading)

    async def _read(self, cursor: str) -> FeedPage:
        store = await self._open()
        feed = await store.events(cursor, PAGE_SIZE)
        page = FeedPage(await self._names.fill(store, feed.events), feed.cursors, feed.cursor)
        if page.events and self.readers:
            self._pages[cursor] = page
            if len(self._pages) > MAX_REMEMBERED_PAGES:
                self._pages.popitem(last=False)
        return page

    def wake(self) -> None:
        """Wake all readers. A read that began before is not shared with readers that come from now on: what woke them
        may have happened after it."""
        news, self._news = self._news, asyncio.Event()
        self._reading = {}
        news.set()

    @property
    def news(self) -> asyncio.Event:
        """Is set when something may have happened after it was asked for. A reader asks for it before it reads, so
        that nothing is missed that happens meanwhile."""
        return self._news

    @staticmethod
    async def wait(news: asyncio.Event, timeout: timedelta) -> None:  # noqa: ASYNC109 - the reader has something to do
        """Until there is news, or for `timeout`."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await news.wait()
        except TimeoutError:
            return

    async def _wake_readers(self) -> None:
        """Turns wake-ups of the store into wake-ups of all readers. Every one costs the process as much as all readers
        together, so the more there are, the more events one wake-up brings."""
        watch = (await self._open()).watch([EVENTS_TOPIC])
        try:
            while True:
                await watch.wait(LOOK_AGAIN_AFTER)
                interval = min(max(READ_INTERVAL, self.readers * INTERVAL_PER_READER), MAX_READ_INTERVAL)
                too_early = span(interval) - (self._world.steady() - self._news_at)
                if too_early > 0:
                    await self._world.sleep(timedelta(microseconds=too_early))
                self._news_at = self._world.steady()
                self.wake()
        finally:
            watch.close()

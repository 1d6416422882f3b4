"""The durable follower of the event feed: every event at least once, by one process at a time, from a stored cursor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.client.feed_names import with_names
from daybreak.core.errors import CursorExpired, StoreError
from daybreak.core.events import Event
from daybreak.core.model import Put, Record
from daybreak.core.units import span
from daybreak.store.protocol import EVENTS_TOPIC, LATEST, Feed, Store
from daybreak.system.ports import Ids, World

FIRST_RETRY_DELAY: Final = timedelta(seconds=1)
RENEW_INTERVAL: Final = timedelta(seconds=5)  # how often the holder rewrites its record
TAKEOVER_AFTER: Final = timedelta(seconds=20)  # a holder that is silent for this long is replaced
MAX_PAGE_SIZE: Final = 500
QUICK_PAGE: Final = timedelta(milliseconds=100)  # a page handled faster than this makes the next page larger
QUICK_WHOLE_PAGE: Final = timedelta(seconds=1)  # the same, if its events are handled together
STOP_TIMEOUT: Final = timedelta(seconds=1)  # time for the last event, and for the last write, when it is stopped


class FollowerCursor(Struct, frozen=True, omit_defaults=True):
    """The progress of a follower, and which process runs it; stored as a record.

    Every event up to `cursor` was handled; a cursor of None is before the oldest event. An empty `holder` means that
    no process runs the follower."""

    cursor: str | None = None
    holder: str = ""


class _TakenOver(Exception):
    """Another process runs this follower now."""


class FeedFollower:
    """Reads the event feed and hands each event that it `wants` to `handle`, one after the other, in the order of the
    feed; or the wanted events of each page to `handle_page`, together. Whoever must react to the end of jobs wants
    `events.ends_job`.

    Events are handled when the function returns; if it raises, the follower logs the error, waits, and hands over the
    same events again. After a crash the events of the page that was under way are handed over again.

    Every process may run a follower under the same record (`kind` and `name`), but only the one that holds the record
    reads the feed. The others wait. If the record does not change for `TAKEOVER_AFTER`, measured by the waiting
    follower's own monotonic clock, that follower takes the record over. The record is only ever changed by
    compare-and-set. A new record starts with the events from now on. `is_holding` says whether this follower is the one
    that reads the feed."""

    def __init__(
        self,
        kind: str,
        name: str,
        store: Store,
        world: World,
        *,
        handle: Callable[[Event], Awaitable[None]] | None = None,
        handle_page: Callable[[list[Event]], Awaitable[None]] | None = None,
        wants: Callable[[Event], bool],
    ) -> None:
        assert (handle is None) != (handle_page is None)
        self.is_holding = False
        self._kind = kind
        self._name = name
        self._store = store
        self._world = world
        self._handle = handle
        self._handle_whole_page = handle_page
        self._wants = wants
        self._holder_id = Ids(world)()
        self._position = FollowerCursor()
        self._revision = 0
        self._renewed_at = 0
        self._page_size = 1
        self._restarted_at: Event | None = None  # the oldest event when the cursor was last found to have expired
        self._is_stopping = False
        self._log = logging.getLogger(f"daybreak.{kind}s")

    async def register(self) -> None:
        """Create the record if it is missing, held by nobody. The events after this call will be handed over, also if
        this process ends before `run`."""
        if await self._read() is None:
            latest = (await self._store.events(LATEST)).cursor
            await self._write(FollowerCursor(latest), 0)

    async def run(self) -> None:
        """Follow the feed until cancelled. Errors are logged and retried."""
        delay = FIRST_RETRY_DELAY
        while True:
            try:
                await self._take_over()
                delay = FIRST_RETRY_DELAY
                self.is_holding = True
                await self._follow()
            except _TakenOver:
                self._log.info("%s %s: another process runs it now", self._kind, self._name)
            except Exception as error:  # noqa: BLE001 - no error of a follower may stop its process
                self._log_error(error)
                self.is_holding = False
                await self._world.sleep(delay * (0.5 + self._world.chance.random()))
                delay = min(delay * 2, TAKEOVER_AFTER)
            finally:
                self.is_holding = False

    def _log_error(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            self._log.warning("%s %s: %s; trying again", self._kind, self._name, error)
        else:
            self._log.warning("%s %s: %r; trying again", self._kind, self._name, error, exc_info=error)

    # -- holding the record --------------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """Wait until this follower holds the record."""
        revision, unchanged_since = -1, 0
        while True:
            record = await self._read()
            if record is None:
                latest = (await self._store.events(LATEST)).cursor
                if await self._write(FollowerCursor(latest, self._holder_id), 0):
                    return
                continue
            position, now = msgspec.json.decode(record.value, type=FollowerCursor), self._world.steady()
            if record.revision != revision:
                revision, unchanged_since = record.revision, now
            is_free = position.holder in ("", self._holder_id)
            if is_free or now - unchanged_since >= span(TAKEOVER_AFTER):
                if await self._write(FollowerCursor(position.cursor, self._holder_id), record.revision):
                    return
            else:
                await self._world.sleep(RENEW_INTERVAL)

    async def _read(self) -> Record | None:
        return next(iter(await self._store.records(self._kind, self._name)), None)

    async def _write(self, position: FollowerCursor, revision: int) -> bool:
        put = Put(kind=self._kind, name=self._name, value=msgspec.json.encode(position), expect=revision)
        [record] = await self._store.put([put])
        if record is None:
            return False
        self._position, self._revision, self._renewed_at = position, record.revision, self._world.steady()
        return True

    async def _save(self, position: FollowerCursor) -> None:
        """Write the position. Raises _TakenOver if another follower holds the record now."""
        while not await self._write(position, self._revision):
            record = await self._read()
            if record is None or msgspec.json.decode(record.value, type=FollowerCursor).holder != self._holder_id:
                raise _TakenOver
            self._revision = record.revision  # our own earlier write succeeded, but its reply was lost

    async def _renew(self) -> None:
        """Rewrite the record if that is due, so that no other follower takes it over."""
        if self._world.steady() - self._renewed_at < span(RENEW_INTERVAL):
            return
        try:
            await self._save(self._position)
        except StoreError as error:
            self._log.warning("%s %s: could not renew its record: %s; it keeps running", self._kind, self._name, error)

    # -- reading the feed ----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        watch = self._store.watch([EVENTS_TOPIC])
        try:
            while True:
                feed = await self._next_page()
                if feed.events:
                    await self._handle_page(feed)
                else:
                    await watch.wait(RENEW_INTERVAL)
                await self._renew()
        except asyncio.CancelledError:
            # Give the record up, so that the next follower need not wait for TAKEOVER_AFTER.
            with contextlib.suppress(StoreError, TimeoutError, _TakenOver):
                async with asyncio.timeout(STOP_TIMEOUT.total_seconds()):
                    await self._save(FollowerCursor(self._position.cursor))
            raise
        finally:
            watch.close()

    async def _next_page(self) -> Feed:
        try:
            return await self._store.events(self._position.cursor, self._page_size)
        except CursorExpired as expired:
            feed = await self._store.events(None, self._page_size)
            oldest = feed.events[0] if feed.events else None
            if oldest is not None and oldest == self._restarted_at:
                # Nothing was purged since the last restart, so the store rejects a cursor that it has just given out.
                return await self._skip_to_latest(expired)
            self._log.error("%s %s: %s; continuing with the oldest event in the store", self._kind, self._name, expired)
            self._position, self._restarted_at = FollowerCursor(None, self._holder_id), oldest
            return feed

    async def _skip_to_latest(self, expired: CursorExpired) -> Feed:
        """Wait a little, then continue with new events only, so that the same page is not repeated forever."""
        self._log.error("%s %s: %s, again; continuing with the events from now on", self._kind, self._name, expired)
        await self._world.sleep(RENEW_INTERVAL)
        feed = await self._store.events(LATEST)
        self._position = FollowerCursor(feed.cursor, self._holder_id)
        return feed

    async def _handle_page(self, feed: Feed) -> None:
        """Hand over each event of a page, then save the cursor.

        Pages grow while they are handled quickly and shrink when they are slow, so that a crash repeats few events."""
        began_at = self._world.steady()
        wanted = [event for event in feed.events if self._wants(event)]
        handled = 0
        try:
            named = await with_names(self._store, wanted)
            if self._handle_whole_page is not None and named:
                await self._finish_and_renew(self._handle_whole_page(named))
                handled = len(named)
                self._check_stopping()
            elif self._handle is not None:
                for event in named:
                    await self._finish_and_renew(self._handle(event))
                    handled += 1
                    self._check_stopping()
        except asyncio.CancelledError:
            if handled:
                await self._move_behind(wanted[handled - 1], feed)
            raise
        quick = QUICK_PAGE if self._handle_whole_page is None else QUICK_WHOLE_PAGE
        if self._world.steady() - began_at < span(quick):
            self._page_size = min(self._page_size * 2, MAX_PAGE_SIZE)
        else:
            self._page_size = max(self._page_size // 4, 1)
        self._position = FollowerCursor(feed.cursor, self._holder_id)
        if wanted:
            await self._save(self._position)

    def _check_stopping(self) -> None:
        if self._is_stopping:
            raise asyncio.CancelledError

    async def _move_behind(self, last: Event, feed: Feed) -> None:
        """Set the position just behind an event in the middle of a page, because the process stops there."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT.total_seconds()):
                handled = feed.events[: feed.events.index(last) + 1]
                part = await self._store.events(self._position.cursor, len(handled))
                if part.events == handled:
                    self._position = FollowerCursor(part.cursor, self._holder_id)

    async def _finish_and_renew(self, handling: Awaitable[None]) -> None:
        """Wait until events are handled, and renew the record meanwhile.

        If this follower is cancelled meanwhile, it waits up to STOP_TIMEOUT: events that were handled are then not
        handed over again by the next follower."""
        task = asyncio.ensure_future(handling)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=RENEW_INTERVAL.total_seconds())
                if not task.done():
                    await self._renew()
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=STOP_TIMEOUT.total_seconds())
            if not task.done() or task.exception() is not None:
                raise
            self._is_stopping = True
        finally:
            task.cancel()
        task.result()

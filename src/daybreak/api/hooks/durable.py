"""Durable hooks: functions called at least once per event, by one worker at a time, from a cursor kept in the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from daybreak.api.hooks.hook_thread import HookThread
from daybreak.api.hooks.registry import Hook
from daybreak.client.client import Client
from daybreak.core.errors import CursorExpired, StoreError
from daybreak.core.events import Event
from daybreak.core.model import Put, Record
from daybreak.core.units import span
from daybreak.store.protocol import EVENTS_TOPIC, LATEST, Feed
from daybreak.system.ports import Ids, World

T = TypeVar("T")

_log = logging.getLogger("daybreak.hooks")

RECORD_KIND: Final = "hook"
MAX_ATTEMPTS: Final = 5  # calls per event; after that the event is skipped
FIRST_RETRY_DELAY: Final = timedelta(seconds=1)
RENEW_INTERVAL: Final = timedelta(seconds=5)  # how often the holder rewrites its record
TAKEOVER_AFTER: Final = timedelta(seconds=20)  # a holder that is silent for this long is replaced
MAX_PAGE_SIZE: Final = 500
QUICK_PAGE: Final = timedelta(milliseconds=100)  # a page handled faster than this makes the next page larger
STOP_TIMEOUT: Final = timedelta(seconds=1)  # time for the last call, and for the last write, when the worker stops


class HookCursor(Struct, frozen=True, omit_defaults=True):
    """The progress of a durable hook, and which follower runs it; stored as a record of kind `hook`.

    Every event up to `cursor` was handled; a cursor of None is before the oldest event. An empty `holder` means that
    no follower runs the hook."""

    cursor: str | None = None
    holder: str = ""


class _TakenOver(Exception):
    """Another worker runs this hook now."""


class Follower:
    """Reads the event feed for one hook and calls its function.

    Every worker has a follower, but only the one that holds the hook's record reads the feed. The others wait. If the
    record does not change for `TAKEOVER_AFTER`, measured by the waiting follower's own monotonic clock, that follower
    takes the record over. The record is only ever changed by compare-and-set."""

    def __init__(self, hook: Hook, client: Client, world: World) -> None:
        self._hook = hook
        self._store = client.store
        self._world = world
        self._holder_id = Ids(world)()
        self._thread = HookThread(f"daybreak-hook-{hook.name}")
        self._position = HookCursor()
        self._revision = 0
        self._renewed_at = 0
        self._page_size = 1
        self._restarted_at: Event | None = None  # the oldest event when the cursor was last found to have expired
        self._is_stopping = False

    async def run(self) -> None:
        """Follow the feed until cancelled. Errors are logged and retried: a hook never stops its worker."""
        delay = FIRST_RETRY_DELAY
        try:
            while True:
                try:
                    await self._take_over()
                    delay = FIRST_RETRY_DELAY
                    await self._follow()
                except _TakenOver:
                    _log.info("hook %s: another worker runs it now", self._hook.name)
                except Exception as error:  # noqa: BLE001 - no error of a hook may stop its worker
                    self._log_error(error)
                    await self._world.sleep(delay * (0.5 + self._world.chance.random()))
                    delay = min(delay * 2, TAKEOVER_AFTER)
        finally:
            # Do not wait for the thread: a call still running has already been given STOP_TIMEOUT.
            self._thread.close(timedelta())

    def _log_error(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            _log.warning("hook %s: %s; trying again", self._hook.name, error)
        else:
            _log.warning("hook %s: %r; trying again", self._hook.name, error, exc_info=error)

    # -- holding the record --------------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """Wait until this follower holds the hook's record."""
        revision, unchanged_since = -1, 0
        while True:
            record = await self._read()
            if record is None:
                latest = (await self._store.events(LATEST)).cursor
                if await self._write(HookCursor(latest, self._holder_id), 0):
                    return
                continue
            position, now = msgspec.json.decode(record.value, type=HookCursor), self._world.steady()
            if record.revision != revision:
                revision, unchanged_since = record.revision, now
            is_free = position.holder in ("", self._holder_id)
            if is_free or now - unchanged_since >= span(TAKEOVER_AFTER):
                if await self._write(HookCursor(position.cursor, self._holder_id), record.revision):
                    return
            else:
                await self._world.sleep(RENEW_INTERVAL)

    async def _read(self) -> Record | None:
        return next(iter(await self._store.records(RECORD_KIND, self._hook.name)), None)

    async def _write(self, position: HookCursor, revision: int) -> bool:
        put = Put(kind=RECORD_KIND, name=self._hook.name, value=msgspec.json.encode(position), expect=revision)
        [record] = await self._store.put([put])
        if record is None:
            return False
        self._position, self._revision, self._renewed_at = position, record.revision, self._world.steady()
        return True

    async def _save(self, position: HookCursor) -> None:
        """Write the position. Raises _TakenOver if another follower holds the record now."""
        while not await self._write(position, self._revision):
            record = await self._read()
            if record is None or msgspec.json.decode(record.value, type=HookCursor).holder != self._holder_id:
                raise _TakenOver
            self._revision = record.revision  # our own earlier write succeeded, but its reply was lost

    async def _renew(self) -> None:
        """Rewrite the record if that is due, so that no other follower takes it over."""
        if self._world.steady() - self._renewed_at < span(RENEW_INTERVAL):
            return
        try:
            await self._save(self._position)
        except StoreError as error:
            _log.warning("hook %s: could not renew its record: %s; the hook keeps running", self._hook.name, error)

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
                    await self._save(HookCursor(self._position.cursor))
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
            _log.error("hook %s: %s; continuing with the oldest event in the store", self._hook.name, expired)
            self._position, self._restarted_at = HookCursor(None, self._holder_id), oldest
            return feed

    async def _skip_to_latest(self, expired: CursorExpired) -> Feed:
        """Wait a little, then continue with new events only, so that the same page is not repeated for ever."""
        _log.error("hook %s: %s, again; continuing with the events from now on", self._hook.name, expired)
        await self._world.sleep(RENEW_INTERVAL)
        feed = await self._store.events(LATEST)
        self._position = HookCursor(feed.cursor, self._holder_id)
        return feed

    async def _handle_page(self, feed: Feed) -> None:
        """Call the function for each event of a page, then save the cursor.

        Pages grow while they are handled quickly and shrink when they are slow, so that a crash repeats few calls."""
        began_at = self._world.steady()
        wanted = [event for event in feed.events if event.kind in self._hook.kinds]
        handled = 0
        try:
            for event in await self._with_task_and_queue(wanted):
                await self._call(event)
                handled += 1
                self._check_stopping()
        except asyncio.CancelledError:
            if handled:
                await self._move_behind(wanted[handled - 1], feed)
            raise
        if self._world.steady() - began_at < span(QUICK_PAGE):
            self._page_size = min(self._page_size * 2, MAX_PAGE_SIZE)
        else:
            self._page_size = max(self._page_size // 4, 1)
        self._position = HookCursor(feed.cursor, self._holder_id)
        if wanted:
            await self._save(self._position)

    def _check_stopping(self) -> None:
        if self._is_stopping:
            raise asyncio.CancelledError

    async def _move_behind(self, last: Event, feed: Feed) -> None:
        """Set the position just behind an event in the middle of a page, because the worker stops there."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT.total_seconds()):
                handled = feed.events[: feed.events.index(last) + 1]
                part = await self._store.events(self._position.cursor, len(handled))
                if part.events == handled:
                    self._position = HookCursor(part.cursor, self._holder_id)

    async def _with_task_and_queue(self, events: list[Event]) -> list[Event]:
        """The events with the task and the queue of their jobs filled in, where the job is still in the store."""
        ids = list(dict.fromkeys(event.job for event in events if event.task is None))
        if not ids:
            return events
        specs = {job.id: job.spec for job in await self._store.get(ids) if job is not None}
        return [
            msgspec.structs.replace(event, task=specs[event.job].task, queue=specs[event.job].queue)
            if event.job in specs
            else event
            for event in events
        ]

    async def _call(self, event: Event) -> None:
        """Call the function until it returns without an error, at most MAX_ATTEMPTS times, with exponential backoff."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            error = await self._renew_while(self._thread.call(self._hook.function, event), is_call=True)
            if error is None:
                return
            is_last = attempt == MAX_ATTEMPTS
            _log.log(
                logging.ERROR if is_last else logging.WARNING,
                "hook %s failed for event %s of job %s, attempt %d/%d%s",
                self._hook.name, event.kind, event.job, attempt, MAX_ATTEMPTS,
                "; skipping the event" if is_last else "",
                exc_info=error,
            )  # fmt: skip
            if not is_last:
                await self._renew_while(self._world.sleep(FIRST_RETRY_DELAY * 2 ** (attempt - 1)))

    async def _renew_while(self, work: Coroutine[Any, Any, T], *, is_call: bool = False) -> T:
        """Wait for `work`, and renew the record meanwhile.

        If this follower is cancelled during a call of the function, it waits up to STOP_TIMEOUT for the call to end: a
        call that has ended without an error is then not repeated by the next follower."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=RENEW_INTERVAL.total_seconds())
                if not task.done():
                    await self._renew()
        except asyncio.CancelledError:
            if is_call:
                await asyncio.wait({task}, timeout=STOP_TIMEOUT.total_seconds())
            if not is_call or not task.done() or task.result() is not None:
                raise
            self._is_stopping = True
        finally:
            task.cancel()
        return task.result()

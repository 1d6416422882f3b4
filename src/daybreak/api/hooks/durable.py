"""Durable hooks: called at least once for every event, by one worker at a time, from a place that is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from daybreak.api.hooks.hook_thread import Caller
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

KIND: Final = "hook"  # of the records
TRIES: Final = 5
FIRST_PAUSE: Final = timedelta(seconds=1)
RENEWED_EVERY: Final = timedelta(seconds=5)
SILENCE: Final = timedelta(seconds=20)  # of whoever follows; then another takes over
PAGE: Final = 500
QUICK: Final = timedelta(milliseconds=100)
LAST_WORDS: Final = timedelta(seconds=1)


class HookCursor(Struct, frozen=True, omit_defaults=True):
    """How far a durable hook has come, and who follows for it; kept as a record of kind `hook`.

    Everything up to `cursor` was dealt with; None stands before the oldest event."""

    cursor: str | None = None
    holder: str = ""


class _Overtaken(Exception):
    """Another worker follows now."""


class Follower:
    """Follows the feed for one hook. Whoever holds its record does so; one who was not heard of for a while, by the
    steady clock of whoever waits, is followed by another. The record changes only by compare-and-set."""

    def __init__(self, hook: Hook, client: Client, world: World) -> None:
        self._hook = hook
        self._store = client.store
        self._world = world
        self._me = Ids(world)()
        self._caller = Caller(f"daybreak-hook-{hook.name}")
        self._place = HookCursor()
        self._revision = 0
        self._renewed_at = 0
        self._page = 1
        self._oldest: Event | None = None  # with which it began when its place was lost
        self._leaving = False

    async def run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    await self._take_over()
                    pause = FIRST_PAUSE
                    await self._follow()
                except _Overtaken:
                    _log.info("hook %s: another worker follows now", self._hook.name)
                except Exception as error:  # noqa: BLE001 - a hook, whatever ails it, does not stop its worker
                    known = isinstance(error, StoreError)
                    told = error if known else repr(error)
                    _log.warning("hook %s: %s; trying again", self._hook.name, told, exc_info=None if known else error)
                    await self._world.sleep(pause * (0.5 + self._world.chance.random()))
                    pause = min(pause * 2, SILENCE)
        finally:
            # Not waited for: what it is still at was given its time.
            self._caller.close(timedelta())

    # -- who follows ---------------------------------------------------------------------------------------------------

    async def _take_over(self) -> None:
        """Returns once this one follows."""
        seen, since = -1, 0
        while True:
            record = await self._read()
            if record is None:
                start = (await self._store.events(LATEST)).cursor
                if await self._write(HookCursor(start, self._me), 0):
                    return
                continue
            place, now = msgspec.json.decode(record.value, type=HookCursor), self._world.steady()
            if record.revision != seen:
                seen, since = record.revision, now
            if place.holder in ("", self._me) or now - since >= span(SILENCE):
                if await self._write(HookCursor(place.cursor, self._me), record.revision):
                    return
            else:
                await self._world.sleep(RENEWED_EVERY)

    async def _read(self) -> Record | None:
        return next(iter(await self._store.records(KIND, self._hook.name)), None)

    async def _write(self, place: HookCursor, revision: int) -> bool:
        put = Put(kind=KIND, name=self._hook.name, value=msgspec.json.encode(place), expect=revision)
        [record] = await self._store.put([put])
        if record is None:
            return False
        self._place, self._revision, self._renewed_at = place, record.revision, self._world.steady()
        return True

    async def _keep(self, place: HookCursor) -> None:
        """Write how far we are; _Overtaken if it is no longer ours to write."""
        while not await self._write(place, self._revision):
            record = await self._read()
            if record is None or msgspec.json.decode(record.value, type=HookCursor).holder != self._me:
                raise _Overtaken
            self._revision = record.revision  # our own write, of which we heard no answer

    async def _renew(self) -> None:
        if self._world.steady() - self._renewed_at < span(RENEWED_EVERY):
            return
        try:
            await self._keep(self._place)
        except StoreError as error:
            _log.warning("hook %s: %s; it goes on meanwhile", self._hook.name, error)

    # -- following -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        watch = self._store.watch([EVENTS_TOPIC])
        try:
            while True:
                feed = await self._next()
                if feed.events:
                    await self._deal_with(feed)
                else:
                    await watch.wait(RENEWED_EVERY)
                await self._renew()
        except asyncio.CancelledError:
            # Whoever follows next need not wait for a silence.
            with contextlib.suppress(StoreError, TimeoutError, _Overtaken):
                async with asyncio.timeout(LAST_WORDS.total_seconds()):
                    await self._keep(HookCursor(self._place.cursor))
            raise
        finally:
            watch.close()

    async def _next(self) -> Feed:
        try:
            return await self._store.events(self._place.cursor, self._page)
        except CursorExpired as gap:
            feed = await self._store.events(None, self._page)
            oldest = feed.events[0] if feed.events else None
            if oldest is not None and oldest == self._oldest:
                # Nothing was purged since it began with these: the store does not take its own cursors.
                return await self._skip(gap)
            _log.error("hook %s: %s; it goes on with the oldest there is", self._hook.name, gap)
            self._place, self._oldest = HookCursor(None, self._me), oldest
            return feed

    async def _skip(self, gap: CursorExpired) -> Feed:
        """Go on with what happens from now on, so that nothing is told again and again; after a pause."""
        _log.error("hook %s: %s, once more; it goes on with what happens from now on", self._hook.name, gap)
        await self._world.sleep(RENEWED_EVERY)
        feed = await self._store.events(LATEST)
        self._place = HookCursor(feed.cursor, self._me)
        return feed

    async def _deal_with(self, feed: Feed) -> None:
        """Tell a page of events; only then the cursor moves on. The quicker they are told, the larger the pages: little
        is told again after a crash."""
        began_at = self._world.steady()
        wanted = [event for event in feed.events if event.kind in self._hook.kinds]
        told = 0
        try:
            for event in await self._named(wanted):
                await self._tell(event)
                told += 1
                self._go_on()
        except asyncio.CancelledError:
            if told:
                await self._step_to(wanted[told - 1], feed)
            raise
        quick = self._world.steady() - began_at < span(QUICK)
        self._page = min(self._page * 2, PAGE) if quick else max(self._page // 4, 1)
        self._place = HookCursor(feed.cursor, self._me)
        if wanted:
            await self._keep(self._place)

    def _go_on(self) -> None:
        if self._leaving:
            raise asyncio.CancelledError

    async def _step_to(self, last: Event, feed: Feed) -> None:
        """Leave in the midst of a page: stand behind the last event that was told."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS.total_seconds()):
                done = feed.events[: feed.events.index(last) + 1]
                part = await self._store.events(self._place.cursor, len(done))
                if part.events == done:
                    self._place = HookCursor(part.cursor, self._me)

    async def _named(self, wanted: list[Event]) -> list[Event]:
        """With the task and the queue of their jobs, as far as these are still there."""
        ids = list(dict.fromkeys(event.job for event in wanted if event.task is None))
        if not ids:
            return wanted
        specs = {job.id: job.spec for job in await self._store.get(ids) if job is not None}
        return [
            msgspec.structs.replace(event, task=specs[event.job].task, queue=specs[event.job].queue)
            if event.job in specs
            else event
            for event in wanted
        ]

    async def _tell(self, event: Event) -> None:
        """Call the function until it returns, a bounded number of times, with growing pauses."""
        for attempt in range(1, TRIES + 1):
            error = await self._renewing(self._caller.ask(self._hook.function, event), patient=True)
            if error is None:
                return
            last = attempt == TRIES
            _log.log(
                logging.ERROR if last else logging.WARNING,
                "hook %s failed at %s of job %s, attempt %d/%d%s",
                self._hook.name, event.kind, event.job, attempt, TRIES, "; it is skipped" if last else "",
                exc_info=error,
            )  # fmt: skip
            if not last:
                await self._renewing(self._world.sleep(FIRST_PAUSE * 2 ** (attempt - 1)))

    async def _renewing(self, work: Coroutine[Any, Any, T], *, patient: bool = False) -> T:
        """Wait for it, and stay the one who follows meanwhile. Told to stop, a patient one waits a little for the end:
        a call that has ended well is not made again."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=RENEWED_EVERY.total_seconds())
                if not task.done():
                    await self._renew()
        except asyncio.CancelledError:
            if patient:
                await asyncio.wait({task}, timeout=LAST_WORDS.total_seconds())
            if not patient or not task.done() or task.result() is not None:
                raise
            self._leaving = True
        finally:
            task.cancel()
        return task.result()

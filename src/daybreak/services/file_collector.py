"""Deletes contents that nothing refers to: mark and sweep, in bounded steps.

A content is deleted if nobody has touched it for a day and no job and no record refers to it. A cycle begins with the
contents that were not touched for a day, reads every job once, and keeps those that a job refers to. What is left is
deleted, unless it was touched meanwhile. A job that is inserted during a cycle has touched its contents before, so it
does not matter that the cycle does not see it.

A cycle with a million jobs reads 5,000 pages, 20 of them per step. One worker at a time does this; without contents
that are old enough, nothing is read at all."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Put
from daybreak.core.units import moment
from daybreak.files import FileStore
from daybreak.files.place import KIND
from daybreak.store.protocol import CacheQuery, Query, Store
from daybreak.system.ports import World
from daybreak.values.file import digests_in

KEEP_UNREFERENCED_FOR: Final = timedelta(days=1)
CYCLE_INTERVAL: Final = timedelta(hours=6)
FIRST_CYCLE_WITHIN: Final = timedelta(hours=1)
STEP_INTERVAL: Final = timedelta(seconds=1)
HELD_FOR: Final = timedelta(minutes=10)
PAGE: Final = 200
PAGES_PER_STEP: Final = 20
DELETED_PER_STEP: Final = 100
REFERRING_KINDS: Final = ("run", "schedule", "saga")  # records whose values may refer to contents


class _Cycle(Struct, frozen=True, omit_defaults=True):
    """The record of the latest cycle: who works on it and until when, or when it ended."""

    by: str = ""
    held_until: datetime | None = None
    ended_at: datetime | None = None


class FileCollector:
    """A service: one step of a cycle per tick."""

    def __init__(self, files: FileStore, store: Store, world: World, *, name: str) -> None:
        self._files = files
        self._store = store
        self._world = world
        self._name = name
        self._is_first = True
        self._began_at: datetime | None = None
        self._left: set[str] = set()  # the contents that nothing seen so far refers to
        self._cursor: str | None = None
        self._is_marked = False

    def _now(self) -> datetime:
        return moment(self._world.wall())

    async def tick(self) -> timedelta:
        """Do one step, and return the delay until the next."""
        if self._is_first:
            self._is_first = False
            return FIRST_CYCLE_WITHIN * self._world.chance.random()
        if self._began_at is None:
            return await self._begin()
        if not await self._hold():  # another worker took over, because this one was suspended
            self._began_at = None
            return CYCLE_INTERVAL
        if self._left and not self._is_marked:
            await self._mark()
        elif self._left:
            await self._sweep()
        if self._left:
            return STEP_INTERVAL
        return await self._end()

    async def _begin(self) -> timedelta:
        now = self._now()
        before = now - KEEP_UNREFERENCED_FOR
        await self._files.tidy(before)
        found = {info.digest for info in await self._files.infos() if info.touched_at < before}
        if not found:
            return CYCLE_INTERVAL
        latest = await self._latest()
        if latest.ended_at is not None and now - latest.ended_at < CYCLE_INTERVAL:
            return latest.ended_at + CYCLE_INTERVAL - now
        if not await self._hold():
            return HELD_FOR
        self._began_at, self._left = now, found
        self._cursor, self._is_marked = None, False
        return STEP_INTERVAL

    async def _latest(self) -> _Cycle:
        found = await self._store.records(KIND, "cycle")
        return msgspec.json.decode(found[0].value, type=_Cycle) if found else _Cycle()

    async def _hold(self) -> bool:
        """Make this worker the one that works on the cycle, or keep it so. False if another one is."""
        now = self._now()
        found = await self._store.records(KIND, "cycle")
        latest = msgspec.json.decode(found[0].value, type=_Cycle) if found else _Cycle()
        if latest.by not in ("", self._name) and latest.held_until is not None and latest.held_until > now:
            return False
        return await self._write(_Cycle(self._name, now + HELD_FOR), found[0].revision if found else 0)

    async def _write(self, cycle: _Cycle, expect: int | None = None) -> bool:
        put = Put(kind=KIND, name="cycle", value=msgspec.json.encode(cycle), expect=expect)
        return (await self._store.put([put]))[0] is not None

    async def _mark(self) -> None:
        if self._cursor is None:
            await self._mark_results()
        for _ in range(PAGES_PER_STEP):
            page = await self._store.find(Query(limit=PAGE, cursor=self._cursor))
            for job in page.jobs:
                self._left -= digests_in(job.spec.args, job.result, job.checkpoint)
            self._cursor = page.cursor
            if page.cursor is None:
                for kind in REFERRING_KINDS:
                    self._left -= digests_in(*(record.value for record in await self._store.records(kind)))
                self._is_marked = True
                return
            if not self._left:
                return

    async def _mark_results(self) -> None:
        """Known results outlive the jobs that computed them. They are read before all jobs: a job that gets its result
        from one later is not missed, even if the result is forgotten then."""
        query = CacheQuery(limit=PAGE, results=True)
        while self._left:
            page = await self._store.cached(query)
            self._left -= digests_in(*(entry.result for entry in page.entries))
            if page.cursor is None:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def _sweep(self) -> None:
        assert self._began_at is not None
        before = self._began_at - KEEP_UNREFERENCED_FOR
        for digest in sorted(self._left)[:DELETED_PER_STEP]:
            await self._files.delete(digest, before)
            self._left.discard(digest)

    async def _end(self) -> timedelta:
        self._began_at = None
        await self._write(_Cycle(ended_at=self._now()))
        return CYCLE_INTERVAL

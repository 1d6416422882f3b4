"""Keeps the wanted number of children alive: starts, replaces and buries them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from daybreak.core.errors import DaybreakError
from daybreak.core.units import counted
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child import Child, Listener, buried

_log = logging.getLogger("daybreak.worker")

RESPAWN: Final = (0.1, 5.0)  # seconds before the next start, after one that died at once
SOLO_IDLE: Final = 10.0
CLOSE_WITHIN: Final = 3.0
LAST_WORDS_WITHIN: Final = 1.0
EXIT_WITHIN: Final = 30.0
ABANDONED: Final = 8  # threads that were given up, before no more are begun in their place
LET_GO_WITHIN: Final = 3.0  # seconds for what a child does at its exit


class ChildImportFailed(DaybreakError):
    """The user's code cannot be imported or set up in a child."""


class Children:
    """`wanted` children of `slots` each. Solo children, beside them, are for async jobs that must run alone: they
    are kept warm for the next one for a while."""

    def __init__(
        self, *, kind: str, wanted: int, slots: int, start: Callable[[int], ChildHandle], settings: WorkerSettings
    ) -> None:
        self.kind = kind
        self.slots = slots
        self.closing = False
        self.trouble: str | None = None
        self._wanted = wanted
        self._start = start
        self._settings = settings
        self._all: list[Child] = []
        self._abandoned: list[Child] = []
        self._dying: list[Child] = []
        self._was_ready = False
        self._next_start = 0.0
        self._pause = RESPAWN[0]
        self._chores: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._solos_come = 0

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._all))

    @property
    def holding(self) -> list[Child]:
        """All whose jobs are not yet accounted for, those that are being buried included."""
        return [*self._all, *self._dying]

    @property
    def regular(self) -> list[Child]:
        """Those that take fresh work."""
        return [child for child in self._all if child.takes_work and not child.solo]

    @property
    def solos(self) -> list[Child]:
        return [child for child in self._all if child.solo and not child.leaving]

    # -- starting ------------------------------------------------------------------------------------------------------

    async def open(self, listener: Listener) -> None:
        self._listener = listener
        for _ in range(self._wanted):
            await self._add()

    async def _add(self, *, solo: bool = False) -> None:
        slots = 1 if solo else self.slots
        self._solos_come -= solo
        try:
            child = Child(self._start(slots), slots, self._listener, solo=solo)
        except OSError as error:
            _log.error("a child for %s tasks could not be started: %s", self.kind, error)
            self._wait_before_next()
            return
        self._all.append(child)
        await child.connect()

    def want_solos(self, wanted: int) -> None:
        """Have so many of them, those that are starting included."""
        while len(self.solos) + self._solos_come < wanted and not self.closing and time.monotonic() >= self._next_start:
            self._solos_come += 1
            self._chore(self._add(solo=True))

    async def ready(self) -> None:
        """Wait until one can take work; Broke if the user's code cannot be loaded."""
        while not self._was_ready:
            if self.trouble is not None:
                raise ChildImportFailed(self.trouble)
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._moved.wait()
            await self._refill()  # those that could not be started

    def is_ready(self) -> None:
        self._was_ready = True
        self._pause = RESPAWN[0]
        self._moved.set()

    def is_broken(self, error: str) -> None:
        self.trouble = error
        if self._was_ready:
            _log.error("a new child could not be set up: %s", error)
        self._moved.set()

    def _wait_before_next(self) -> None:
        self._next_start = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, RESPAWN[1])

    # -- looking after them --------------------------------------------------------------------------------------------

    async def look(self, now: float) -> None:
        """Who died unheard, who has grown too large, who is missing."""
        for child in self:
            if child.handle.exit_description() is not None:
                # Its last words come first; only where someone else holds its socket open does no end of them come.
                child.leaving = True
                child.ended_at = child.ended_at or now
                if now - child.ended_at > LAST_WORDS_WITHIN:
                    child.lost()
            elif child.bye_at is not None and now - child.bye_at > EXIT_WITHIN:
                child.end()  # what it does at its exit hangs
            elif self._is_too_large(child):
                self.replace(child, "it takes more memory than it may")
            elif child.solo and child.is_idle and now - child.heard_at > SOLO_IDLE:
                child.bye()
        for child in [one for one in self._abandoned if one.handle.exit_description() is not None]:
            self._abandoned.remove(child)
            child.lost()
        await self._refill()

    async def _refill(self) -> None:
        present = sum(1 for child in self._all if not child.solo and not child.leaving)
        # On a loop with many slots one is lost, not the place of its child; but threads do not pile up without end.
        if self.kind == "sync" or len(self._abandoned) >= ABANDONED:
            present += len(self._abandoned)
        if present < self._wanted and time.monotonic() >= self._next_start and not self.closing:
            await self._add()

    def _is_too_large(self, child: Child) -> bool:
        limit = self._settings.memory_limit
        return limit is not None and not child.leaving and (child.handle.memory() or 0) > limit

    def recycle(self, child: Child) -> None:
        """Between jobs, replace a child that has run its number of jobs; and let one go that has nothing left to do."""
        limit = self._settings.recycle_after
        if limit is not None and child.done >= limit and not child.leaving:
            self.replace(child, f"it has run {counted(child.done, 'job')}")
        if child.leaving and not child.held and child.blamed is None:
            child.bye()

    def replace(self, child: Child, why: str) -> None:
        if self.closing:
            return
        _log.info("a child for %s tasks is replaced: %s", self.kind, why)
        child.leaving = True
        child.recall()
        if not child.solo:
            self._chore(self._refill())
        if not child.held:
            child.bye()

    def abandon(self, child: Child) -> None:
        """A thread that cannot be ended: it is lost until it returns."""
        self._all.remove(child)
        self._abandoned.append(child)

    # -- burying -------------------------------------------------------------------------------------------------------

    def bury(self, child: Child, then: Callable[[str], None]) -> None:
        """It is gone; once that is certain, and how, say so."""
        if child in self._all:
            self._all.remove(child)
        self._dying.append(child)
        self._chore(self._bury(child, then))

    async def _bury(self, child: Child, then: Callable[[str], None]) -> None:
        is_let_go = child.leaving and child.blamed is None
        how = await buried(child.handle, LET_GO_WITHIN if is_let_go else 0.0)
        expected = self.closing or child.blamed is not None or (child.leaving and not child.held)
        if not expected:
            held = f"; it held {len(child.held)} {'job' if len(child.held) == 1 else 'jobs'}" if child.held else ""
            _log.warning("a child for %s tasks is gone: %s%s", self.kind, how, held)
        then(how)
        self._dying.remove(child)
        if not child.was_ready and not expected:
            self._wait_before_next()  # it died as soon as it was started
            if not self._was_ready and self.trouble is None:
                self.is_broken(f"a child for {self.kind} tasks died while it imported your code: {how}")
        self._moved.set()
        await self._refill()

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def close(self) -> None:
        """Let them go; end those that do not."""
        self.closing = True
        for child in self:
            if child.ready:
                child.bye()
            else:
                child.end()
        deadline = time.monotonic() + CLOSE_WITHIN
        while self._all and time.monotonic() < deadline:
            self._moved.clear()
            try:
                async with asyncio.timeout(0.1):
                    await self._moved.wait()
            except TimeoutError:
                for child in self:
                    if child.handle.exit_description() is not None:
                        child.lost()
        for child in self:
            child.end()
            child.lost()
        if self._chores:
            await asyncio.wait(self._chores, timeout=5)

"""Keeps the wanted number of children alive: starts, replaces and removes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from daybreak.core.errors import DaybreakError
from daybreak.core.units import counted
from daybreak.system.ports import Clock
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.child import Child, ChildListener, wait_for_end

_log = logging.getLogger("daybreak.worker")

MIN_START_PAUSE, MAX_START_PAUSE = 0.1, 5.0  # seconds before the next start after a child that died at once
SOLO_IDLE_TIMEOUT: Final = 10.0  # seconds that an idle solo child waits for the next job
CLOSE_TIMEOUT: Final = 3.0
BACKGROUND_TIMEOUT: Final = 5.0  # seconds for the removal of children that have ended
# Seconds to read the last messages of a child that has died. The end of the stream normally comes at once; it does not
# come if another process holds the socket open.
LAST_MESSAGES_TIMEOUT: Final = 1.0
EXIT_TIMEOUT: Final = 30.0  # seconds after which a child that was told to exit is killed
EXIT_HANDLERS_TIMEOUT: Final = 3.0  # seconds for the exit handlers of a child that has disconnected
MAX_ABANDONED: Final = 8  # threads that could not be ended, before no more are started in their place


class ChildImportFailed(DaybreakError):
    """The user's code cannot be imported or set up in a child."""


class Children:
    """`wanted` children with `slots` slots each.

    Beside them there are solo children, for async jobs that must run alone. An idle solo child stays for a while, so
    that the next such job need not wait for a new one."""

    def __init__(
        self,
        *,
        kind: str,
        wanted: int,
        slots: int,
        start: Callable[[int], ChildHandle],
        settings: WorkerSettings,
        clock: Clock,
    ) -> None:
        self.kind = kind
        self.slots = slots
        self.closing = False
        self.setup_error: str | None = None
        self._wanted = wanted
        self._start = start
        self._settings = settings
        self._clock = clock
        self._all: list[Child] = []
        self._abandoned: list[Child] = []
        self._dying: list[Child] = []
        self._was_ready = False
        self._next_start = 0.0
        self._start_pause = MIN_START_PAUSE
        self._background: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._solos_starting = 0

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._all))

    @property
    def holding(self) -> list[Child]:
        """All children that may hold leases, including those that are dead and not yet removed."""
        return [*self._all, *self._dying]

    @property
    def regular(self) -> list[Child]:
        """The children that take new work."""
        return [child for child in self._all if child.takes_work and not child.solo]

    @property
    def solos(self) -> list[Child]:
        return [child for child in self._all if child.solo and not child.leaving]

    # -- starting ------------------------------------------------------------------------------------------------------

    async def open(self, listener: ChildListener) -> None:
        self._listener = listener
        for _ in range(self._wanted):
            await self._add()

    async def _add(self, *, solo: bool = False) -> None:
        slots = 1 if solo else self.slots
        self._solos_starting -= solo
        try:
            child = Child(self._start(slots), slots, self._listener, self._clock, solo=solo)
        except OSError as error:
            _log.error("cannot start a child for %s tasks: %s", self.kind, error)
            self._delay_next_start()
            return
        self._all.append(child)
        await child.connect()

    def want_solos(self, wanted: int) -> None:
        """Start solo children until there are `wanted`, including those that are starting."""
        while (
            len(self.solos) + self._solos_starting < wanted
            and not self.closing
            and self._clock.now() >= self._next_start
        ):  # fmt: skip
            self._solos_starting += 1
            self._run_in_background(self._add(solo=True))

    async def wait_until_ready(self) -> None:
        """Wait until one child takes work. Raises ChildImportFailed if the user's code cannot be loaded."""
        while not self._was_ready:
            if self.setup_error is not None:
                raise ChildImportFailed(self.setup_error)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(0.5):
                    await self._changed.wait()
            await self._refill()  # a child may have failed to start

    def on_child_ready(self) -> None:
        self._was_ready = True
        self._start_pause = MIN_START_PAUSE
        self._changed.set()

    def on_setup_failed(self, error: str) -> None:
        self.setup_error = error
        if self._was_ready:
            _log.error("a new child failed to import or set up your code: %s", error)
        self._changed.set()

    def _delay_next_start(self) -> None:
        self._next_start = self._clock.now() + self._start_pause
        self._start_pause = min(self._start_pause * 2, MAX_START_PAUSE)

    # -- supervision ---------------------------------------------------------------------------------------------------

    async def check(self, now: float) -> None:
        """Remove children that have died, replace those that use too much memory, and start missing ones."""
        for child in self:
            if child.handle.exit_description() is not None:
                # Read its last messages first. See LAST_MESSAGES_TIMEOUT.
                child.leaving = True
                child.ended_at = child.ended_at or now
                if now - child.ended_at > LAST_MESSAGES_TIMEOUT:
                    child.on_disconnect()
            elif child.exit_sent_at is not None and now - child.exit_sent_at > EXIT_TIMEOUT:
                child.kill()  # an exit handler hangs
            elif self._uses_too_much_memory(child):
                self.replace(child, "it uses more memory than memory_limit")
            elif child.solo and child.is_idle and now - child.reported_at > SOLO_IDLE_TIMEOUT:
                child.send_exit()
        for child in [one for one in self._abandoned if one.handle.exit_description() is not None]:
            self._abandoned.remove(child)
            child.on_disconnect()
        await self._refill()

    async def _refill(self) -> None:
        present = sum(1 for child in self._all if not child.solo and not child.leaving)
        # An abandoned sync child keeps its slot until its thread returns. An abandoned async child occupies one of many
        # slots, so it is replaced at once, but only MAX_ABANDONED times.
        if self.kind == "sync" or len(self._abandoned) >= MAX_ABANDONED:
            present += len(self._abandoned)
        if present < self._wanted and self._clock.now() >= self._next_start and not self.closing:
            await self._add()

    def _uses_too_much_memory(self, child: Child) -> bool:
        limit = self._settings.memory_limit
        return limit is not None and not child.leaving and (child.handle.memory() or 0) > limit

    def recycle(self, child: Child) -> None:
        """Replace a child that has run `recycle_after` jobs, and send away a leaving child that holds no more jobs."""
        limit = self._settings.recycle_after
        if limit is not None and child.jobs_done >= limit and not child.leaving:
            self.replace(child, f"it has run {counted(child.jobs_done, 'job')}")
        if child.leaving and not child.held and child.blamed is None:
            child.send_exit()

    def replace(self, child: Child, reason: str) -> None:
        """Start another child in place of this one, which exits after its running jobs."""
        if self.closing:
            return
        _log.info("replacing a child for %s tasks: %s", self.kind, reason)
        child.leaving = True
        child.recall()
        if not child.solo:
            self._run_in_background(self._refill())
        if not child.held:
            child.send_exit()

    def abandon(self, child: Child) -> None:
        """Give up a thread that cannot be ended. It is removed once it returns."""
        self._all.remove(child)
        self._abandoned.append(child)

    # -- removing ------------------------------------------------------------------------------------------------------

    def remove(self, child: Child, on_removed: Callable[[str], None]) -> None:
        """Remove a child that has disconnected. `on_removed` gets a description of its end once it has ended."""
        if child in self._all:
            self._all.remove(child)
        self._dying.append(child)
        self._run_in_background(self._remove(child, on_removed))

    async def _remove(self, child: Child, on_removed: Callable[[str], None]) -> None:
        was_told_to_leave = child.leaving and child.blamed is None
        end = await wait_for_end(child.handle, self._clock, EXIT_HANDLERS_TIMEOUT if was_told_to_leave else 0.0)
        is_expected = self.closing or child.blamed is not None or (child.leaving and not child.held)
        if not is_expected:
            held = f"; it held {counted(len(child.held), 'job')}" if child.held else ""
            _log.warning("a child for %s tasks died: %s%s", self.kind, end, held)
        on_removed(end)
        self._dying.remove(child)
        if not child.was_ready and not is_expected:
            self._delay_next_start()  # it died before it was ready
            if not self._was_ready and self.setup_error is None:
                self.on_setup_failed(f"a child for {self.kind} tasks died while it imported your code: {end}")
        self._changed.set()
        await self._refill()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Tell all children to exit, and kill those that do not."""
        self.closing = True
        for child in self:
            if child.ready:
                child.send_exit()
            else:
                child.kill()
        deadline = self._clock.now() + CLOSE_TIMEOUT
        while self._all and self._clock.now() < deadline:
            self._changed.clear()
            try:
                async with self._clock.timeout(0.1):
                    await self._changed.wait()
            except TimeoutError:
                for child in self:
                    if child.handle.exit_description() is not None:
                        child.on_disconnect()
        for child in self:
            child.kill()
            child.on_disconnect()
        if self._background:
            await self._clock.wait(self._background, BACKGROUND_TIMEOUT)

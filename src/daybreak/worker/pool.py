"""Slots of one kind and their children: hands leases out, collects how they ended, keeps the children alive."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final

from daybreak.errors import DaybreakError
from daybreak.model import (
    Cancelled,
    Done,
    Failed,
    Failure,
    HandedBack,
    Lease,
    Lost,
    Outcome,
    Suspended,
    TimedOut,
)
from daybreak.store import Extended
from daybreak.worker.child import Child, Held, buried
from daybreak.worker.isolation import Body
from daybreak.worker.keeper import Keeper
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.source import Tasks
from daybreak.worker.trial import Trial
from daybreak.worker.wire import Ended, Keep, Progress

_log = logging.getLogger("daybreak.worker")

EVERY_SO_OFTEN: Final = 1.5  # seconds between two looks at most, while this process runs at all
STUCK_AFTER: Final = 0.05  # a child at one job for so long gives back what waits behind it
ASYNC_GRACE: Final = 2.0  # what an async task gets to end after its time limit, before its child is ended
SOLO_IDLE: Final = 10.0
RESPAWN: Final = (0.1, 5.0)


class Broke(DaybreakError):
    """The user's code cannot be imported or set up in a child."""


class Pool:
    """`children` of `slots` each. A solo child, beside them, is for async jobs that must run alone."""

    def __init__(
        self,
        *,
        is_async: bool,
        tasks: Tasks,
        children: int,
        slots: int,
        start: Callable[[int], Body],
        settings: WorkerSettings,
        trial: Trial,
    ) -> None:
        self.kind = "async" if is_async else "sync"
        self.is_async = is_async
        self.tasks = tasks
        self.changed = asyncio.Event()
        self.busy = asyncio.Event()  # set whenever something was handed out
        self.may_find = True  # False once the store had nothing more, until something changes
        self.ended: list[tuple[Lease, Outcome]] = []
        self.broke: str | None = None
        self.keeper: Keeper | None = None
        self._wanted = children
        self._slots = slots
        self._start = start
        self._settings = settings
        self._trial = trial
        self._children: list[Child] = []
        self._marking: dict[int, Lease] = {}
        self._next_start = 0.0
        self._start_pause = RESPAWN[0]
        self._was_ready = False
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = False
        self._looked_at = time.monotonic()
        self._abandoned: list[Child] = []

    # -- children ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        for _ in range(self._wanted):
            await self._add()

    async def _add(self, *, solo: bool = False) -> None:
        slots = 1 if solo else self._slots
        try:
            child = Child(self._start(slots), slots, self, solo=solo)
        except OSError as trouble:
            _log.error("a child for %s tasks could not be started: %s", self.kind, trouble)
            self._wait_before_next()
            return
        self._children.append(child)
        await child.connect()

    def _wait_before_next(self) -> None:
        self._next_start = time.monotonic() + self._start_pause
        self._start_pause = min(self._start_pause * 2, RESPAWN[1])

    async def ready(self) -> None:
        """Wait until a child can take work; Broke if the user's code cannot be loaded."""
        while not self._was_ready:
            if self.broke is not None:
                raise Broke(self.broke)
            self.changed.clear()
            await self.changed.wait()

    def on_ready(self, child: Child, tasks: Tasks) -> None:
        if missing := sorted({name for name, _ in self.tasks - tasks}):
            self.on_broken(
                child,
                f"a child process that imported your code did not find the tasks {', '.join(missing)}: define them "
                "at the top of a module, or name their module in Daybreak(imports=[...])",
            )
            child.ready = False
            child.end()
            return
        self._was_ready = True
        self._start_pause = RESPAWN[0]
        self.changed.set()

    def on_broken(self, child: Child, trouble: str) -> None:  # noqa: ARG002
        self.broke = trouble
        if self._was_ready:
            _log.error("a new child could not be set up: %s", trouble)
        self.changed.set()

    def on_gone(self, child: Child) -> None:
        if child in self._children:
            self._children.remove(child)
        self._chore(self._bury(child))

    async def _bury(self, child: Child) -> None:
        how = await buried(child.body)
        was_asked = child.leaving and not child.held
        if not was_asked and not self._closing:
            _log.log(
                logging.WARNING if child.held else logging.INFO,
                "a child for %s tasks is gone: %s%s",
                self.kind,
                how,
                f"; it held {len(child.held)} jobs" if child.held else "",
            )
        self._end_all(child, how)
        if child.done == 0 and not was_asked:
            self._wait_before_next()  # it died as soon as it was started
        self.changed.set()

    def _end_all(self, child: Child, how: str) -> None:
        """A child died: what it had not begun goes back, uncharged; what it was at is lost."""
        begun = {held.lease.seq for held in child.begun()}
        for held in list(child.held.values()):
            seq = held.lease.seq
            if child.blamed is not None:
                self._end(child, held, child.blamed[1] if seq == child.blamed[0] else HandedBack())
            elif seq in begun:
                self._end(child, held, Lost(how, alone=len(begun) == 1))
            else:
                self._end(child, held, HandedBack())

    def _chore(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def look_again(self) -> None:
        self.may_find = True
        self.changed.set()

    # -- handing out ---------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many leases can be put to use now."""
        if len(self._trial) >= 2 * self._wanted:  # enough suspects in hand; they run one by one
            return 0
        return sum(max(child.room, 0) for child in self._children if not child.solo)

    @property
    def in_hand(self) -> int:
        return sum(len(child.held) for child in self._children) + len(self._trial) + len(self._marking)

    def held(self) -> list[Lease]:
        """Every lease that must be kept alive."""
        leases = [held.lease for child in self._children for held in child.held.values()]
        return leases + self._trial.waiting + list(self._marking.values())

    def hand_out(self, leases: list[Lease]) -> None:
        fresh = []
        for lease in leases:
            if self._closing:
                self.ended.append((lease, HandedBack()))
                self.changed.set()
            elif lease.lost:
                self._trial.add(lease)
            else:
                fresh.append(lease)
        self._share_out(fresh)
        self._try_next()
        self.busy.set()

    def _share_out(self, leases: list[Lease]) -> None:
        """To whom has the fewest in hand: free slots first, then work ahead. What nobody can take goes back."""
        given: dict[Child, list[Lease]] = {
            child: [] for child in self._children if child.ready and not (child.solo or child.leaving or child.gone)
        }
        if not given:
            self.ended += [(lease, HandedBack()) for lease in leases]
            self.changed.set()
        elif len(given) == 1:
            next(iter(given.values())).extend(leases)
        else:
            room = {child: child.room for child in given}
            for lease in leases:
                open_to = [child for child in given if len(given[child]) < room[child]] or list(given)
                given[min(open_to, key=lambda one: len(one.held) + len(given[one]))].append(lease)
        for child, works in given.items():
            if works:
                child.give(works)

    def _try_next(self) -> None:
        """Let the next suspect begin, if none is on trial: first it says so in its lease, then it runs."""
        child = next((one for one in self._children if one.is_idle and one.solo is self.is_async), None)
        if not len(self._trial) or self.keeper is None:
            return
        if child is None:
            if self.is_async and not any(one.solo for one in self._children):
                self._chore(self._add(solo=True))
            return
        lease = self._trial.next()
        if lease is None:
            return
        self._trial.begin(lease, time.monotonic())
        self._marking[lease.seq] = lease
        self.keeper.mark(lease, lambda held: self._begin_alone(lease, held), alone=True)

    def _begin_alone(self, lease: Lease, held: bool) -> None:
        self._marking.pop(lease.seq, None)
        child = next((one for one in self._children if one.is_idle and one.solo is self.is_async), None)
        if not held:
            self._trial.end(lease.seq)
        elif child is None or self._closing:
            self._trial.end(lease.seq)
            self.ended.append((lease, HandedBack()))
        else:
            child.give([lease], alone=True)
        self.changed.set()

    # -- collecting ----------------------------------------------------------------------------------------------------

    def on_ended(self, child: Child, ended: list[tuple[Held, Ended]]) -> None:
        for held, said in ended:
            self._trial.end(held.lease.seq)
            if held.asked != "lost":
                self.ended.append((held.lease, _outcome(held, said)))
        self._recycle(child)
        if child.leaving and not child.held and child.blamed is None:
            child.bye()
        self.changed.set()

    def on_returned(self, child: Child, leases: list[Held]) -> None:  # noqa: ARG002
        for held in leases:
            if held.asked != "lost":
                self.ended.append((held.lease, HandedBack()))
        self.changed.set()

    def on_progress(self, lease: Lease, said: Progress) -> None:
        assert self.keeper is not None
        self.keeper.progress(lease, said.fraction, said.message)

    def on_keep(self, child: Child, lease: Lease, said: Keep) -> None:
        assert self.keeper is not None
        self.keeper.keep(lease, said.checkpoint, lambda held: child.kept(said, held=held))

    def _end(self, child: Child, held: Held, outcome: Outcome) -> None:
        if child.held.pop(held.lease.seq, None) is None:
            return
        self._trial.end(held.lease.seq)
        if held.asked == "lost":
            pass
        elif held.asked == "cancel" and isinstance(outcome, Lost | HandedBack):
            self.ended.append((held.lease, Cancelled()))
        elif held.asked == "suspend" and isinstance(outcome, Lost | HandedBack):
            self.ended.append((held.lease, Suspended()))
        else:
            self.ended.append((held.lease, outcome))
        self.changed.set()

    def _recycle(self, child: Child) -> None:
        """Between jobs, replace a child that has run its number of jobs or has grown too large."""
        limit, memory = self._settings.recycle_after, self._settings.memory_limit
        if child.leaving or child.gone or self._closing:
            return
        too_many = limit is not None and child.done >= limit
        too_large = memory is not None and (child.body.memory() or 0) > memory
        if too_many or too_large:
            child.leaving = True
            child.recall()
            if not child.solo:
                self._chore(self._add())
            _log.info(
                "a child for %s tasks is replaced: %s",
                self.kind,
                f"it has run {child.done} jobs" if too_many else "it takes more memory than it may",
            )

    # -- what is asked of jobs -----------------------------------------------------------------------------------------

    def heard(self, lease: Lease, answer: Extended) -> None:
        """A heartbeat was answered: stop what is no longer ours, or what someone wants stopped."""
        why = "lost" if not answer.held else "cancel" if answer.cancel else "suspend" if answer.suspend else None
        if why is None:
            return
        for child in self._children:
            held = child.held.get(lease.seq)
            if held is not None and held.asked is None:
                held.asked = why  # type: ignore[assignment]
                held.end_at = time.monotonic() + self._settings.cancel_grace.total_seconds()
                child.stop(lease.seq, held.asked)  # type: ignore[arg-type]
                return
        if any(waiting.seq == lease.seq for waiting in self._trial.waiting):
            self._trial.drop(lease.seq)
            if why != "lost":
                self.ended.append((lease, Cancelled() if why == "cancel" else Suspended()))
                self.changed.set()

    # -- looking after them --------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Now and then: who ran too long, who died unheard, who is missing."""
        now = time.monotonic()
        # Time in which this process itself stood still is nobody's running time.
        if (stood_still := now - self._looked_at - EVERY_SO_OFTEN) > 0:
            self._forgive(stood_still)
        self._looked_at = now
        for child in list(self._children):
            if child.body.how_it_ended() is not None:
                child.lost()
                continue
            self._look_at(child, now)
        for seq in self._trial.survived(now):
            self._release(seq)
        self._try_next()
        await self._refill(now)

    def _forgive(self, gap: float) -> None:
        for child in self._children:
            for held in child.held.values():
                if held.limit is not None:
                    held.limit += gap
                if held.end_at is not None:
                    held.end_at += gap

    def _look_at(self, child: Child, now: float) -> None:
        at, since, begun = child.body.cell.read()
        for held in list(child.held.values()):
            if held.n > begun:
                continue
            if held.began_at is None:
                held.began_at = since / 1e6 if child.slots == 1 and at == held.lease.seq else now
            over = held.limit is not None and now - held.began_at > held.limit + (ASYNC_GRACE if self.is_async else 0)
            if over or (held.end_at is not None and now > held.end_at):
                self._stop_by_force(child, held, timed_out=over)
                return
        if child.slots == 1 and len(child.held) > 1 and at and now - since / 1e6 > STUCK_AFTER:
            child.recall()
        if child.solo and child.is_idle and now - child.started_at > SOLO_IDLE and not len(self._trial):
            child.bye()

    def _stop_by_force(self, child: Child, held: Held, *, timed_out: bool) -> None:
        """End a child for the sake of one job; its neighbours go back, uncharged, once its last words are read."""
        outcome: Outcome = TimedOut(timedelta(seconds=held.limit or 0)) if timed_out else HandedBack()
        child.leaving = True
        child.blamed = (held.lease.seq, outcome)
        if not child.end():
            _log.error(
                "%s %s runs in a thread, which cannot be ended: its slot is lost until it returns",
                held.lease.spec.task,
                held.lease.job,
            )
            self._children.remove(child)
            self._abandoned.append(child)
            self._end_all(child, "")

    def _release(self, seq: int) -> None:
        for child in self._children:
            if (held := child.held.get(seq)) is not None and self.keeper is not None:
                held.alone = False
                self.keeper.mark(held.lease, lambda _: None, alone=False)

    async def _refill(self, now: float) -> None:
        if self._closing:
            return
        for child in [one for one in self._abandoned if one.body.how_it_ended() is not None]:
            self._abandoned.remove(child)
            child.lost()
        present = sum(1 for child in self._children if not child.solo and not child.leaving) + len(self._abandoned)
        if present < self._wanted and now >= self._next_start:
            await self._add()

    # -- the end -------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin nothing more: what waits in children and for its trial goes back."""
        self._closing = True
        for lease in self._trial.clear():
            self.ended.append((lease, HandedBack()))
        for child in self._children:
            child.recall()
        self.changed.set()

    def stop_politely(self) -> None:
        """Async tasks can be cancelled where they wait."""
        for child in self._children:
            if self.is_async:
                for seq in child.held:
                    child.stop(seq, "shutdown")

    def stop_now(self) -> None:
        """End all children; what they hold goes back, uncharged."""
        self._closing = True
        for child in list(self._children):
            child.leaving = True
            child.blamed = child.blamed or (0, HandedBack())
            if not child.end():
                self._end_all(child, "")

    async def close(self) -> None:
        self._closing = True
        for child in list(self._children):
            if child.ready:
                child.bye()
            else:
                child.end()
        deadline = time.monotonic() + 2
        while self._children and time.monotonic() < deadline:
            self.changed.clear()
            try:
                async with asyncio.timeout(0.2):
                    await self.changed.wait()
            except TimeoutError:
                for child in list(self._children):
                    if child.body.how_it_ended() is not None:
                        child.lost()
        for child in list(self._children):
            child.end()
            child.lost()
        if self._chores:
            await asyncio.wait(self._chores, timeout=5)


def _outcome(held: Held, said: Ended) -> Outcome:
    match said.what:
        case "done":
            return Done(said.result)
        case "cancelled":
            return Cancelled()
        case "suspended":
            return Suspended(said.note)
        case "timed out":
            return TimedOut(timedelta(seconds=held.limit or said.ran_for))
        case "handed back":
            return HandedBack()
        case _:
            return Failed(said.failure or Failure(message="it failed and did not say how"))

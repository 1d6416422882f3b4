"""Slots of one kind: hands leases out to children, collects how they ended, and keeps their limits."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from daybreak.core.model import Cancelled, HandedBack, Lease, Lost, Outcome, Suspended
from daybreak.policy import timeouts
from daybreak.store.protocol import Extended
from daybreak.worker.launcher import ChildHandle
from daybreak.worker.settings import WorkerSettings
from daybreak.worker.supervisor.batch_size import BatchSize
from daybreak.worker.supervisor.child import AHEAD, Child, Held
from daybreak.worker.supervisor.children import Children
from daybreak.worker.supervisor.hang_detector import HangDetector
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.lease_source import Tasks
from daybreak.worker.supervisor.outcomes import as_asked, outcome_of
from daybreak.worker.supervisor.prefetch import LONG, DurationForecast, PrefetchedLeases, may_begin
from daybreak.worker.supervisor.quarantine import Quarantine
from daybreak.worker.supervisor.quarantine_terms import QuarantineTerms
from daybreak.worker.supervisor.time_limits import Limits
from daybreak.worker.wire import Ended, Progress, SaveCheckpoint, StopReason

_log = logging.getLogger("daybreak.worker")

EVERY_SO_OFTEN: Final = 0.5  # seconds between two looks at jobs, at most, while this process runs at all
REST: Final = 0.004
AHEAD_LONGEST: Final = 0.05
LEAD: Final = 0.005


class Pool:
    def __init__(
        self,
        *,
        is_async: bool,
        tasks: Tasks,
        children: int,
        slots: int,
        start: Callable[[int], ChildHandle],
        settings: WorkerSettings,
        trial: QuarantineTerms,
    ) -> None:
        self.is_async = is_async
        self.tasks = tasks
        self.children = Children(
            kind="async" if is_async else "sync", wanted=children, slots=slots, start=start, settings=settings
        )
        self.changed = asyncio.Event()
        self._hasty = asyncio.Event()
        self.busy = asyncio.Event()  # set whenever something was handed out
        self.may_find = True  # False once the store had nothing more, until something changes
        self.announced = False  # since the last look someone said that there is new work
        self.ended: list[tuple[Lease, Outcome]] = []
        self.reporting: list[tuple[Lease, Outcome]] = []  # on its way to the store
        self._keeper: Heartbeats | None = None
        self._cancel_grace = settings.cancel_grace.total_seconds()
        self._limits = Limits(self.children, is_async=is_async, end_all=self._end_all)
        self._hanging = HangDetector(is_async=is_async, end=self._limits.end_hanging)
        self._court = Quarantine(trial, self.children, is_async=is_async, report=self._report)
        self._looked_at = time.monotonic()
        self._pace = BatchSize()
        self._spares = PrefetchedLeases()
        self._foresight = DurationForecast()
        self._limit_for: Callable[[Lease], timedelta | None] = limit_for

    def keep_by(self, keeper: Heartbeats) -> None:
        self._keeper = self._court.keeper = keeper

    def limit_by(self, limit_for: Callable[[Lease], timedelta | None]) -> None:
        self._limit_for = limit_for

    def limit_of(self, lease: Lease) -> float | None:
        if lease.spec.options.timeout is None:
            return None
        limit = self._limit_for(lease)
        return None if limit is None else limit.total_seconds()

    def look_again(self) -> None:
        self.may_find = self.announced = True
        self.changed.set()
        self._hasty.set()

    async def gather(self) -> bool:
        """While children have enough in hand, let more of what ends come together in one exchange; not when new work
        was announced, which may be urgent. Whether it took time."""
        self._hasty.clear()
        if len(self.ended) < self._pace.limit // 2 and self._lasts_for() - 1.5 * self._pace.lasts > REST:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST):
                    await self._hasty.wait()
            return True
        return False

    def found_urgent(self) -> None:
        self._pace.found_urgent()

    @property
    def exchanges_last(self) -> float:
        return self._pace.lasts

    def _lasts_for(self) -> float:
        """Seconds until the first child has a slot and no work for it."""
        return min((child.lasts_for for child in self.children.regular), default=0.0)

    # -- handing out ---------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many leases can be put to use now."""
        regular = self.children.regular
        soon = sum(left <= self._lead for child in regular if child.takes_work for left in self._ends_in(child))
        # What was announced may be more urgent than the spares: it is asked for beside them, once, and goes first.
        spares = max(0, len(self._spares) - (soon if self.announced else 0))
        return min(self.free + soon - spares, self._pace.limit)

    @property
    def free(self) -> int:
        """How many leases can be given to children now; what is claimed beyond that is claimed ahead."""
        return max(sum(max(child.room, 0) for child in self.children.regular) - self._court.running, 0)

    @property
    def slots(self) -> int:
        return sum(child.slots for child in self.children.regular)

    @property
    def _lead(self) -> float:
        """How long before a slot is free its next job should be asked for."""
        return 1.5 * self._pace.lasts + LEAD

    def _ends_in(self, child: Child) -> list[float]:
        if not self._foresight or not child.held or len(child.held) > child.slots or child.reserved:
            return []  # nothing is known, or it has something ahead, or must have nothing
        tasks = {seq: held.lease.spec.task for seq, held in child.held.items()}
        return self._foresight.ends_in(child.begun(), tasks, time.monotonic())

    def frees_in(self) -> float | None:
        """In how many seconds it is time to ask for the next jobs, as far as that can be foreseen."""
        lead = self._lead
        ends = (left - lead for child in self.children.regular for left in self._ends_in(child))
        return min((left for left in ends if left > 0), default=None)

    @property
    def in_hand(self) -> int:
        held = sum(len(child.held) for child in self.children.holding)
        return held + len(self._spares) + len(self._court)

    def held(self) -> list[Lease]:
        """Every lease that must be kept alive."""
        leases = [held.lease for child in self.children.holding for held in child.held.values()]
        unsettled = [lease for lease, _ in (*self.reporting, *self.ended)]
        return leases + self._spares.leases + self._court.leases + unsettled

    def runs(self, lease: Lease) -> bool:
        """Whether a child is at it, under this very lease."""
        found = (child.held.get(lease.seq) for child in self.children.holding)
        return any(held is not None and held.lease.fence == lease.fence for held in found)

    def are_urgent(self, leases: list[Lease]) -> bool:
        """Whether one of them goes before all that is in hand; with nothing in hand, before another of them."""
        if not leases:
            return False
        held = [one.lease.priority for child in self.children.holding for one in child.held.values()]
        came = [lease.priority for lease in leases]
        return min(came) < (min(held) if held else max(came))

    def hand_out(self, leases: list[Lease]) -> None:
        if not self.in_hand:
            self._looked_at = time.monotonic()  # nobody looks while there is nothing: that is no standstill
        fresh, suspects = [], []
        in_hand = self._still_in_hand({lease.seq for lease in leases})
        for lease in leases:
            if lease.seq in in_hand:
                self._give_up_older_run(lease)
            if lease.lost and self._court.suspects(lease) and not self.children.closing:
                suspects.append(lease)
            else:
                fresh.append(lease)
        if suspects:
            self._court.add(suspects)
        self._share_out(fresh)
        self.busy.set()

    def _still_in_hand(self, seqs: set[int]) -> set[int]:
        spare = {lease.seq for lease in self._spares.leases} & seqs
        return spare.union(*(child.held.keys() & seqs for child in self.children))

    def _give_up_older_run(self, lease: Lease) -> None:
        """A job that came back to this worker under a new fence may still run here under an older one."""
        for spare in self._spares.leases:
            if spare.seq == lease.seq:
                self._spares.drop(spare)
        for child in self.children:
            if (old := child.held.get(lease.seq)) is not None and old.asked is None:
                old.asked, old.end_at = "lost", time.monotonic() + self._cancel_grace
                child.stop(lease.seq, "lost")

    def took(self, items: int, seconds: float) -> None:
        """How long an exchange took: what children hold ahead must last until the next is back, on a slow disk too."""
        self._pace.took(items, seconds)
        ahead = min(max(AHEAD, 1.2 * self._pace.lasts), AHEAD_LONGEST)
        for child in self.children:
            child.ahead = ahead

    def _share_out(self, leases: list[Lease]) -> None:
        """To whom has the fewest in hand: free slots first, then work ahead. The rest waits for the next free slot."""
        room = {child: room for child in self.children.regular if (room := child.room) > 0}
        if self.children.closing:
            self.give_back(leases)
            return
        now_free = sum(room.values())
        waiting = [lease for lease in leases if not may_begin(lease)]
        if waiting:
            leases = [lease for lease in leases if may_begin(lease)]
        if waiting or len(leases) > now_free:
            self._spares.add([*waiting, *leases[now_free:]], time.monotonic())
            leases = leases[:now_free]
        for child, works in shared_out(leases, room).items():
            child.give(self._begun(works))
        for lease in waiting:
            self._begin_first(lease)

    def _give_spares(self, child: Child) -> None:
        if len(self._spares) and (room := child.room) > 0 and not self.children.closing:
            child.give(self._begun(self._spares.take(room)))

    def _begun(self, leases: list[Lease]) -> list[Lease]:
        """The store hears that those which were claimed ahead begin. They need not wait for that: see `may_begin`."""
        if all(lease.begun for lease in leases) or self._keeper is None:
            return leases
        for lease in leases:
            if not lease.begun:
                self._keeper.mark(lease, nobody_waits, begun=True)
        return [replace(lease, begun=True) for lease in leases]

    def _begin_first(self, lease: Lease) -> None:
        """Say that it begins, and only then let it."""

        def answered(held: bool) -> None:
            if held and self._spares.has_begun(lease):
                for child in self.children.regular:
                    self._give_spares(child)

        assert self._keeper is not None
        self._keeper.mark(lease, answered, begun=True)

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _report(self, ended: list[tuple[Lease, Outcome]]) -> None:
        if ended:
            self.ended += ended
            self.changed.set()

    def give_back(self, leases: list[Lease]) -> None:
        """These were never given to a child."""
        self._report([(lease, HandedBack(unused=True)) for lease in leases])

    def give_strays_back(self, leases: list[Lease]) -> None:
        """Nobody here knows of these, so nobody can say that they never began."""
        self._report([(lease, HandedBack()) for lease in leases])

    def _conclude(self, held: Held, outcome: Outcome) -> None:
        """How a held lease ends, given what was asked of it meanwhile."""
        if held.alone:
            self._court.end(held.lease.seq)
        if held.asked is None:
            self.ended.append((held.lease, outcome))
        elif held.asked != "lost":
            self.ended.append((held.lease, as_asked(held, outcome)))

    def on_ended(self, child: Child, ended: list[tuple[Held, Ended]]) -> None:
        for held, said in ended:
            if said.ran_for >= LONG:
                self._foresight.learn(held.lease.spec.task, said.ran_for)
            self._conclude(held, outcome_of(held, said))
        self.children.recycle(child)
        if len(self._court):
            self._court.try_next()
        self._give_spares(child)
        self.changed.set()

    def on_returned(self, child: Child, leases: list[Held]) -> None:
        for held in leases:
            self._conclude(held, HandedBack(unused=True))
        self.children.recycle(child)
        self.changed.set()

    def on_progress(self, lease: Lease, said: Progress) -> None:
        assert self._keeper is not None
        self._keeper.progress(lease, said.fraction, said.message)

    def on_keep(self, child: Child, lease: Lease, said: SaveCheckpoint) -> None:
        assert self._keeper is not None
        self._keeper.keep(lease, said.checkpoint, lambda held: child.kept(said, held=held))

    # -- the life of children ------------------------------------------------------------------------------------------

    def on_ready(self, child: Child, tasks: Tasks) -> None:
        if missing := sorted({name for name, _ in self.tasks - tasks}):
            child.ready = child.was_ready = False  # so that the next start waits
            child.end()
            self.children.is_broken(
                f"a child process that imported your code did not find the tasks {', '.join(missing)}: define them "
                "at the top of a module, or name their module in Daybreak(imports=[...])"
            )
            return
        self.children.is_ready()
        self._court.try_next()
        self.look_again()

    def on_broken(self, child: Child, error: str) -> None:  # noqa: ARG002
        self.children.is_broken(error)

    def on_gone(self, child: Child) -> None:
        self.children.bury(child, lambda how: self._end_all(child, how))

    def _end_all(self, child: Child, how: str) -> None:
        """A child died: what it had not begun goes back, uncharged; what it was at is lost, and so is what it had just
        ended and could not tell: a job that ruins its child's voice must not run for ever."""
        begun = child.begun()
        silent = child.handle.slot_table.ended() & child.held.keys()
        alone = len(begun) + len(silent) == 1
        held_by_it, child.held = list(child.held.values()), {}
        for held in held_by_it:
            seq = held.lease.seq
            if child.blamed is not None:
                self._conclude(held, child.blamed[1] if seq == child.blamed[0] else HandedBack())
            elif seq in begun:
                self._conclude(held, Lost(how, alone=alone))
            elif seq in silent:
                self._conclude(held, Lost(f"{how}; the job had ended, and could not say how", alone=alone))
            else:
                self._conclude(held, HandedBack())
        if child.blamed is None:
            self._court.saw_die(
                [held.lease for held in held_by_it if held.lease.seq in begun or held.lease.seq in silent]
            )
        self.changed.set()

    # -- requests and limits -------------------------------------------------------------------------------------------

    def heard(self, lease: Lease, answer: Extended) -> None:
        """A heartbeat was answered: stop what is no longer ours, or what someone wants stopped."""
        why: StopReason
        if not answer.held:
            why = "lost"
        elif answer.cancel:
            why = "cancel"
        elif answer.suspend:
            why = "suspend"
        else:
            return
        for child in self.children.holding:
            if (held := child.held.get(lease.seq)) is not None and held.lease.fence == lease.fence:
                if held.asked is None:
                    held.asked = why
                    held.end_at = time.monotonic() + self._cancel_grace
                    child.stop(lease.seq, why)
                    if lease.seq not in child.begun():
                        child.recall()
                return
        if (self._court.drop(lease) or self._spares.drop(lease)) and why != "lost":
            self._report([(lease, Cancelled() if why == "cancel" else Suspended())])

    async def look(self) -> None:
        """Now and then: who ran too long, who may begin, who is missing."""
        now = time.monotonic()
        # Time in which this process itself stood still is nobody's running time.
        if (stood_still := now - self._looked_at) > EVERY_SO_OFTEN:
            for child in self.children:
                child.forgive(stood_still)
        self._looked_at = now
        for child in self.children:
            self._limits.look_at(child, now)
        self._hanging.look(self.children, now)
        self.give_back(self._spares.kept_too_long(now))
        self._court.look(now)
        await self.children.look(now)

    # -- the end -------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin nothing more: what waits in children and for its trial goes back."""
        self.children.closing = True
        self.give_back([*self._court.clear(), *self._spares.clear()])
        for child in self.children:
            child.recall()

    def stop_politely(self) -> None:
        """Async tasks can be cancelled where they wait."""
        if self.is_async:
            for child in self.children:
                for seq in child.held:
                    child.stop(seq, "shutdown")

    def stop_now(self) -> None:
        """End all children; what they hold goes back, uncharged."""
        self.children.closing = True
        for child in self.children:
            child.leaving = True
            child.blamed = child.blamed or (0, HandedBack())
            if not child.end():
                self._end_all(child, "")


def shared_out(leases: list[Lease], room: dict[Child, int]) -> dict[Child, list[Lease]]:
    """Each to whom has the fewest in hand, among those with room for it; there is room for all."""
    if len(room) == 1 and leases:
        return dict.fromkeys(room, leases)
    given: dict[Child, list[Lease]] = {}
    line = [(len(child.held), n, child) for n, child in enumerate(room)]
    heapq.heapify(line)
    for lease in leases:
        held, n, child = line[0]
        works = given.setdefault(child, [])
        works.append(lease)
        if len(works) < room[child]:
            heapq.heapreplace(line, (held + 1, n, child))
        else:
            heapq.heappop(line)
    return given


def nobody_waits(_: bool) -> None:
    """For marks whose answer changes nothing."""


def limit_for(lease: Lease) -> timedelta | None:
    """How long an attempt may run where nothing has been learned of it."""
    return timeouts.limit_for(lease.spec.options, lease.timeouts)

"""Runs suspects of one pool: each in a child of its own, side by side, as many as can start now.

A suspect is a job that was present when a child of this worker died, or at two deaths of whatever kind. The death of
its child then blames it and nobody else. The death of the whole worker blames only the one that is on trial: its lease
says `alone`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.model import HandedBack, Lease, Outcome
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.children import Children
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.quarantine_terms import SUSPECTED_AFTER, QuarantineTerms, lasts

# Async suspects need a process each, which imports the user's code: that costs some tenths of a second of a core and
# some tens of megabytes. More of them than this would only slow each other down while they start.
PER_CORE: Final = 4
SOLO_AT_MOST: Final = 16
# Seconds that a suspect may wait for its child to start, or to finish what it is at.
PATIENCE_ASYNC: Final = 5.0
PATIENCE_SYNC: Final = 1.0
SOONEST, LATEST = 0.25, 30.0  # seconds after which one that could not start is tried again
REMEMBERED: Final = 10_000


class Suspect(Struct, eq=False):
    """A suspect that has not begun. One that is `marked` waits for the store to know that it begins, in `child`."""

    lease: Lease
    since: float
    is_tried: bool
    child: Child | None = None
    marked: bool = False


class Quarantine:
    """`report` takes those that cannot begin here now, with how they end."""

    def __init__(
        self,
        trial: QuarantineTerms,
        children: Children,
        *,
        is_async: bool,
        report: Callable[[list[tuple[Lease, Outcome]]], None],
    ) -> None:
        self.keeper: Heartbeats | None = None
        self._trial = trial
        self._children = children
        self._is_async = is_async
        self._report = report
        self._waiting: dict[int, Suspect] = {}
        self._began_at: dict[int, float] = {}
        self._at_death: dict[int, None] = {}
        self._takes = 1.0  # seconds that a suspect keeps the next one waiting, lately

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def leases(self) -> list[Lease]:
        return [one.lease for one in self._waiting.values()]

    @property
    def running(self) -> int:
        """Suspects that use a slot beside those of the regular children."""
        return len(self._waiting) + sum(bool(child.held) for child in self._children.solos) if self._is_async else 0

    # -- who is suspected ----------------------------------------------------------------------------------------------

    def saw_die(self, leases: list[Lease]) -> None:
        """These ran in a child that died: one of them may have killed it."""
        for lease in leases:
            self._at_death.pop(lease.seq, None)
            self._at_death[lease.seq] = None
        while len(self._at_death) > REMEMBERED:
            del self._at_death[next(iter(self._at_death))]

    def suspects(self, lease: Lease) -> bool:
        return lease.lost >= SUSPECTED_AFTER or lease.seq in self._at_death or lasts(lease) > 0

    # -- taking and giving back ----------------------------------------------------------------------------------------

    def add(self, leases: list[Lease]) -> None:
        """Those that can start now, or as soon as a child for them is ready, wait here for it. The others go back to
        the store, uncharged, and are claimed again one after the other: nobody holds what does not run."""
        now, turned_away = time.monotonic(), 0
        for lease in leases:
            is_tried = lasts(lease) > 0
            if (older := self._waiting.get(lease.seq)) is not None:
                self._forget(older)  # under a fence that was lost
            if len(self._waiting) < self._places() and (self._trial.is_free or not is_tried):
                if is_tried:
                    self._trial.reserve(lease.seq)
                self._waiting[lease.seq] = Suspect(lease, now, is_tried)
            else:
                turned_away += 1
                self._turn_away(lease, turned_away / (1 if is_tried else max(self._most, 1)))
        self.try_next()
        for one in self._waiting.values():
            if one.lease.begun and not one.marked and self.keeper is not None:
                one.lease = replace(one.lease, begun=False)
                self.keeper.mark(one.lease, _nothing, begun=False)

    def _turn_away(self, lease: Lease, turns: float) -> None:
        delay = timedelta(seconds=min(max(turns * self._takes, SOONEST), LATEST))
        self._report([(lease, HandedBack(delay=delay, unused=True))])

    @property
    def _most(self) -> int:
        if not self._is_async:
            return len(self._children.regular)
        return min(PER_CORE * (os.cpu_count() or 1), SOLO_AT_MOST, self._children.slots)

    def _places(self) -> int:
        """How many suspects may wait for a child: as many as have none of their own yet."""
        if self._is_async:
            return self._most - sum(bool(child.held) for child in self._children.solos)
        return sum(1 for child in self._children.regular if not child.is_taken)

    def end(self, seq: int) -> None:
        """It ended, however it did."""
        self._trial.end(seq)
        if (began_at := self._began_at.pop(seq, None)) is not None:
            self._took(time.monotonic() - began_at)

    def _took(self, seconds: float) -> None:
        self._takes += 0.3 * (seconds - self._takes)

    def drop(self, lease: Lease) -> bool:
        """Whether it waited."""
        one = self._waiting.get(lease.seq)
        if one is None or one.lease.fence != lease.fence:
            return False
        self._forget(one)
        return True

    def _forget(self, one: Suspect) -> None:
        self._waiting.pop(one.lease.seq, None)
        self._trial.end(one.lease.seq)
        if one.child is not None:
            one.child.reserved = False

    def clear(self) -> list[Lease]:
        """All that have not begun."""
        waiting = list(self._waiting.values())
        for one in waiting:
            self._forget(one)
        return [one.lease for one in waiting]

    # -- beginning -----------------------------------------------------------------------------------------------------

    def try_next(self) -> None:
        """Let those begin whose child is free: first their lease says so, then they run."""
        if self.keeper is None or self._children.closing:
            return
        for one in list(self._waiting.values()):
            if one.marked:
                continue
            if one.child is None or not one.child.takes_work:
                one.child = self._room()
            if one.child is not None and one.child.is_idle:
                one.marked = True
                self._mark(one)

    def _mark(self, one: Suspect) -> None:
        assert self.keeper is not None
        self.keeper.mark(one.lease, lambda held: self._begin(one, held), alone=one.is_tried, begun=True)

    def _room(self) -> Child | None:
        """A child for a suspect alone: of the sync ones one is kept free for it, async ones get an extra child."""
        wanted = {id(one.child) for one in self._waiting.values() if one.child is not None}
        if self._is_async:
            free = [child for child in self._children.solos if child.is_idle and id(child) not in wanted]
            self._children.want_solos(min(len(self._waiting) + self._busy_solos(), self._most))
            return free[0] if free else None
        regular = [one for one in self._children.regular if not one.is_taken and id(one) not in wanted]
        if not regular:
            return None
        child = min(regular, key=lambda one: len(one.held))
        child.reserved = True
        if len(child.held) > 1:
            child.recall()
        return child

    def _busy_solos(self) -> int:
        return sum(bool(child.held) for child in self._children.solos)

    def _begin(self, one: Suspect, held: bool) -> None:
        if self._waiting.get(one.lease.seq) is not one:
            return
        child, lease = one.child, replace(one.lease, begun=True, alone=one.is_tried)
        if held and child is not None and child.is_idle and not self._children.closing:
            now = self._began_at[lease.seq] = time.monotonic()
            self._waiting.pop(lease.seq)
            if one.is_tried:
                self._trial.begin(lease.seq, now + lasts(lease))
            child.give([lease], alone=True)
            child.reserved = False
            return
        self._forget(one)
        if held:
            self._turn_away(lease, 1)

    def look(self, now: float) -> None:
        """Those that lived through their trial are no longer on it, and the next may begin."""
        for seq in self._trial.survived(now):
            self._took(now - self._began_at.pop(seq, now))
            for child in self._children:
                if (held := child.held.get(seq)) is not None and self.keeper is not None:
                    held.alone = False
                    self.keeper.mark(held.lease, _nothing, alone=False)
        patience = PATIENCE_ASYNC if self._is_async else PATIENCE_SYNC
        for one in list(self._waiting.values()):
            if now - one.since > patience and not one.marked:
                self._forget(one)
                self._turn_away(one.lease, 1)
        self.try_next()


def _nothing(_: bool) -> None:
    """Nobody waits for the answer."""

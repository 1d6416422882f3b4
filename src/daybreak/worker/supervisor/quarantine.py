"""Runs suspects alone: jobs that were present at a crash, each in a child of its own.

A job is a suspect if a child of this worker crashed while it ran, or if it was present at two crashes of any kind.
Alone in a child, it is the only one to blame if that child crashes. Suspects run side by side, as many as can start
now; the others go back to the store.

A crash of the whole worker could still have been caused by any job in it. So a job that was present at three crashes is
on probation when it starts: its lease says `alone`, and if the worker dies now, that job alone is blamed. A worker has
one job on probation at a time. The probation is short at first and longer after each further crash; a job that survives
it runs on, and the next one may start."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.model import Ending, HandedBack, Lease
from daybreak.system.ports import Clock
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.children import Children
from daybreak.worker.supervisor.heartbeats import Heartbeats

SUSPECT_AFTER: Final = (
    2  # crashes; the first one is usually not caused by a job: a deploy, a power cut, a spot instance
)
PROBATION_AFTER: Final = 3  # crashes, or fewer if the job allows fewer
FIRST_PROBATION: Final = 1.0  # seconds
PROBATION_GROWTH: Final = 4  # factor for each further crash
NOT_STARTED: Final = float("inf")
# Each async suspect needs a process that imports the user's code, which takes some tenths of a second of a core and
# some tens of megabytes. More of them than this would only slow down each other's start.
SOLOS_PER_CORE: Final = 4
MAX_SOLOS: Final = 16
# Seconds that a suspect may wait for its child to start, or to finish its current job.
MAX_WAIT_ASYNC: Final = 5.0
MAX_WAIT_SYNC: Final = 1.0
MIN_DELAY, MAX_DELAY = 0.25, 30.0  # seconds after which a suspect that could not start may be claimed again
MAX_REMEMBERED: Final = 10_000


def probation_seconds(lease: Lease) -> float:
    """How long this job is on probation when it starts; 0 if it need not be.

    The time grows with each crash, so that a job that kills its worker after minutes is still on probation then, in the
    end."""
    after = min(max(lease.spec.options.deaths, 1), PROBATION_AFTER)
    if lease.lost < after:
        return 0.0
    return FIRST_PROBATION * float(PROBATION_GROWTH ** min(lease.lost - after, 10))


class Probation:
    """The job on probation: at most one at a time in all pools of a worker, which share `ends_at`."""

    def __init__(self, ends_at: dict[int, float]) -> None:
        self._ends_at = ends_at
        self._own: set[int] = set()  # the jobs of this pool

    @property
    def is_free(self) -> bool:
        return not self._ends_at

    def reserve(self, seq: int) -> None:
        """Reserve the probation for a job that starts as soon as there is a child for it."""
        self._ends_at[seq] = NOT_STARTED
        self._own.add(seq)

    def begin(self, seq: int, ends_at: float) -> None:
        self._ends_at[seq] = ends_at
        self._own.add(seq)

    def end(self, seq: int) -> None:
        if seq in self._own:
            self._own.discard(seq)
            self._ends_at.pop(seq, None)

    def take_survivors(self, now: float) -> list[int]:
        """End the probation of the jobs of this pool that have survived it, and return them."""
        survivors = [seq for seq in self._own if now >= self._ends_at[seq]]
        for seq in survivors:
            self.end(seq)
        return survivors


class Suspect(Struct, eq=False):
    """A suspect that has not started. With `is_marked` the store is being told that it starts, in `child`."""

    lease: Lease
    since: float
    needs_probation: bool
    child: Child | None = None
    is_marked: bool = False


class Quarantine:
    """The suspects of one pool. `report` gets those that cannot start now, with their outcome."""

    def __init__(
        self,
        probation: Probation,
        children: Children,
        clock: Clock,
        *,
        is_async: bool,
        report: Callable[[list[tuple[Lease, Ending]]], None],
    ) -> None:
        self.heartbeats: Heartbeats | None = None
        self._probation = probation
        self._children = children
        self._clock = clock
        self._is_async = is_async
        self._report = report
        self._waiting: dict[int, Suspect] = {}
        self._started_at: dict[int, float] = {}
        self._at_crash: dict[int, None] = {}
        self._turn_seconds = 1.0  # how long a suspect makes the next one wait, as a moving average

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def leases(self) -> list[Lease]:
        return [suspect.lease for suspect in self._waiting.values()]

    @property
    def extra_slots(self) -> int:
        """Slots that suspects occupy beside those of the regular children."""
        if not self._is_async:
            return 0
        return len(self._waiting) + self._busy_solos()

    # -- who is a suspect ----------------------------------------------------------------------------------------------

    def record_crash(self, leases: list[Lease]) -> None:
        """These jobs ran in a child that crashed: one of them may have caused it."""
        for lease in leases:
            self._at_crash.pop(lease.seq, None)
            self._at_crash[lease.seq] = None
        while len(self._at_crash) > MAX_REMEMBERED:
            del self._at_crash[next(iter(self._at_crash))]

    def is_suspect(self, lease: Lease) -> bool:
        return lease.lost >= SUSPECT_AFTER or lease.seq in self._at_crash or probation_seconds(lease) > 0

    # -- accepting and handing back ------------------------------------------------------------------------------------

    def add(self, leases: list[Lease]) -> None:
        """Accept the suspects that can start now or as soon as their child is ready. The others go back to the store,
        uncharged, and are claimed again later: a worker holds no job that it cannot start."""
        now, refused = self._clock.now(), 0
        for lease in leases:
            needs_probation = probation_seconds(lease) > 0
            older = self._waiting.get(lease.seq)
            if older is not None:
                self._remove(older)  # its fence is outdated
            if len(self._waiting) < self._free_children() and (self._probation.is_free or not needs_probation):
                if needs_probation:
                    self._probation.reserve(lease.seq)
                self._waiting[lease.seq] = Suspect(lease, now, needs_probation)
            else:
                refused += 1
                side_by_side = 1 if needs_probation else max(self._max_suspects, 1)
                self._hand_back(lease, refused / side_by_side)
        self.start_waiting()
        for suspect in self._waiting.values():
            if suspect.lease.begun and not suspect.is_marked and self.heartbeats is not None:
                suspect.lease = replace(suspect.lease, begun=False)
                self.heartbeats.mark(suspect.lease, _ignore_reply, begun=False)

    def postpone(self, leases: list[Lease]) -> None:
        """Hand back suspects that were claimed in a call with others: they are claimed again later, alone."""
        for turn, lease in enumerate(leases, 1):
            self._hand_back(lease, turn)

    def _hand_back(self, lease: Lease, turns: float) -> None:
        """Hand back a suspect that must wait for this many turns of others."""
        delay = timedelta(seconds=min(max(turns * self._turn_seconds, MIN_DELAY), MAX_DELAY))
        self._report([(lease, HandedBack(delay=delay, unused=True))])

    @property
    def _max_suspects(self) -> int:
        if not self._is_async:
            return len(self._children.regular)
        return min(SOLOS_PER_CORE * (os.cpu_count() or 1), MAX_SOLOS, self._children.slots)

    def _free_children(self) -> int:
        """How many children suspects may wait for: those that no suspect has yet."""
        if self._is_async:
            return self._max_suspects - self._busy_solos()
        return sum(1 for child in self._children.regular if not child.runs_alone)

    def on_ended(self, seq: int) -> None:
        """A suspect that ran has ended, in whatever way."""
        self._probation.end(seq)
        started_at = self._started_at.pop(seq, None)
        if started_at is not None:
            self._record_turn(self._clock.now() - started_at)

    def _record_turn(self, seconds: float) -> None:
        self._turn_seconds += 0.3 * (seconds - self._turn_seconds)

    def drop(self, lease: Lease) -> bool:
        """Remove a suspect that has not started. False if it is not here."""
        suspect = self._waiting.get(lease.seq)
        if suspect is None or suspect.lease.fence != lease.fence:
            return False
        self._remove(suspect)
        return True

    def _remove(self, suspect: Suspect) -> None:
        self._waiting.pop(suspect.lease.seq, None)
        self._probation.end(suspect.lease.seq)
        if suspect.child is not None:
            suspect.child.reserved = False

    def clear(self) -> list[Lease]:
        """Remove and return all that have not started."""
        waiting = list(self._waiting.values())
        for suspect in waiting:
            self._remove(suspect)
        return [suspect.lease for suspect in waiting]

    # -- starting ------------------------------------------------------------------------------------------------------

    def start_waiting(self) -> None:
        """Start the suspects whose child is idle: first their lease is marked in the store, then they run."""
        if self.heartbeats is None or self._children.closing:
            return
        for suspect in list(self._waiting.values()):
            if suspect.is_marked:
                continue
            if suspect.child is None or not suspect.child.takes_work:
                suspect.child = self._find_child()
            if suspect.child is not None and suspect.child.is_idle:
                suspect.is_marked = True
                self._mark(suspect)

    def _mark(self, suspect: Suspect) -> None:
        assert self.heartbeats is not None
        self.heartbeats.mark(
            suspect.lease, lambda held: self._start(suspect, held), alone=suspect.needs_probation, begun=True
        )

    def _find_child(self) -> Child | None:
        """A child for one suspect: a sync suspect reserves a regular child, an async suspect gets an extra child."""
        wanted = {id(suspect.child) for suspect in self._waiting.values() if suspect.child is not None}
        if self._is_async:
            idle = [child for child in self._children.solos if child.is_idle and id(child) not in wanted]
            self._children.want_solos(min(len(self._waiting) + self._busy_solos(), self._max_suspects))
            return idle[0] if idle else None
        regular = [child for child in self._children.regular if not child.runs_alone and id(child) not in wanted]
        if not regular:
            return None
        child = min(regular, key=lambda child: len(child.held))
        child.reserved = True
        if len(child.held) > 1:
            child.recall()
        return child

    def _busy_solos(self) -> int:
        return sum(bool(child.held) for child in self._children.solos)

    def _start(self, suspect: Suspect, held: bool) -> None:
        if self._waiting.get(suspect.lease.seq) is not suspect:
            return
        child, lease = suspect.child, replace(suspect.lease, begun=True, alone=suspect.needs_probation)
        if held and child is not None and child.is_idle and not self._children.closing:
            now = self._started_at[lease.seq] = self._clock.now()
            self._waiting.pop(lease.seq)
            if suspect.needs_probation:
                self._probation.begin(lease.seq, now + probation_seconds(lease))
            child.give([lease], alone=True)
            child.reserved = False
            return
        self._remove(suspect)
        if held:
            self._hand_back(lease, 1)

    def check(self, now: float) -> None:
        """End the probation of jobs that survived it, hand back suspects that waited too long, and start others."""
        for seq in self._probation.take_survivors(now):
            self._record_turn(now - self._started_at.pop(seq, now))
            for child in self._children:
                held = child.held.get(seq)
                if held is not None and self.heartbeats is not None:
                    held.alone = False
                    self.heartbeats.mark(held.lease, _ignore_reply, alone=False)
        max_wait = MAX_WAIT_ASYNC if self._is_async else MAX_WAIT_SYNC
        for suspect in list(self._waiting.values()):
            if now - suspect.since > max_wait and not suspect.is_marked:
                self._remove(suspect)
                self._hand_back(suspect.lease, 1)
        self.start_waiting()


def _ignore_reply(_: bool) -> None:
    """For marks whose reply changes nothing."""

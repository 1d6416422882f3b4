"""Known ways to get the supervisor wrong, each a small change of one of its real methods."""

from __future__ import annotations

from typing import Any

import msgspec
from planted import Planted

from daybreak.core.model import HandedBack, Lost
from daybreak.worker.supervisor import pool as pool_module
from daybreak.worker.supervisor.child import Child
from daybreak.worker.supervisor.claim_loop import ClaimLoop
from daybreak.worker.supervisor.hang_detector import HangDetector
from daybreak.worker.supervisor.heartbeats import Heartbeats
from daybreak.worker.supervisor.pool import Pool
from daybreak.worker.supervisor.quarantine import Probation, Quarantine
from daybreak.worker.supervisor.time_limits import TimeLimits

replace = msgspec.structs.replace


# -- leases ------------------------------------------------------------------------------------------------------------


def leases_without_those_of_children(self: Pool) -> Any:
    """Heartbeats are sent for what waits, and forgotten for what runs."""
    unsettled = [lease for lease, _ in (*self.reporting, *self.ended)]
    return self._prefetched.leases + self._quarantine.leases + unsettled


_on_heartbeat = Pool.on_heartbeat


def run_again_when_lost(self: Pool, lease: Any, reply: Any) -> None:
    """A job whose lease is lost is started once more, under the same lease."""
    if not reply.held:
        for child in self.children.holding:
            if lease.seq in child.held and child.held[lease.seq].lease.fence == lease.fence:
                child.give([child.held[lease.seq].lease])
                return
    _on_heartbeat(self, lease, reply)


_end_lease = Pool._end_lease


def report_under_the_new_fence(self: Pool, held: Any, outcome: Any) -> None:
    """A job whose lease was lost is reported all the same, under the fence that its next holder must have."""
    if held.stop_reason == "lost":
        self.ended.append((replace(held.lease, fence=held.lease.fence + 2), outcome))
        return
    _end_lease(self, held, outcome)


# -- claims ------------------------------------------------------------------------------------------------------------

_claim_request = ClaimLoop._claim_request


def claim_beyond_capacity(self: ClaimLoop, limit: int) -> Any:
    return replace(_claim_request(self, limit + 30), begins=limit + 30)


# -- ends --------------------------------------------------------------------------------------------------------------

_end_all = Pool._end_all


def forget_all(self: Pool, child: Child, end: str) -> None:
    """The jobs of a child that died are nobody's."""
    child.held = {}
    self.changed.set()


def charge_what_never_began(self: Pool, child: Child, end: str) -> None:
    """Everything that a dead child held counts as lost, also what it had not begun."""
    for held in list(child.held.values()):
        if held.lease.seq not in child.running() and child.blamed is None:
            del child.held[held.lease.seq]
            self._end_lease(held, Lost(end))
    _end_all(self, child, end)


def blame_all(self: Pool, child: Child, end: str) -> None:
    """Whoever was in a child that died is to blame."""
    leases, child.held = list(child.held.values()), {}
    for held in leases:
        self._end_lease(held, Lost(end, alone=True) if child.blamed is None else HandedBack())
    self.changed.set()


def charge_the_killed(self: Pool, child: Child, end: str) -> None:
    """Jobs beside one whose time is over pay for it."""
    child.blamed = None
    _end_all(self, child, end)


def kill_and_forget(self: Pool) -> None:
    """A worker that stops ends its children, and does not hand their jobs back."""
    self.children.closing = True
    for child in self.children:
        child.held = {}
        child.kill()


# -- suspects ----------------------------------------------------------------------------------------------------------


def mark_too_late(self: Quarantine, suspect: Any) -> None:
    """The job has begun when the store is told."""
    lease, held = suspect.lease, self.heartbeats
    self._start(suspect, True)
    held.mark(lease, lambda _: None, alone=suspect.needs_probation, begun=True)


_beat = Heartbeats._beat


def beat_alone(self: Heartbeats, *what: Any) -> Any:
    return replace(_beat(self, *what), alone=True)


WORKER = [
    Planted("no heartbeat for what runs", {"I21"}, 10, changes=((Pool, "leases", leases_without_those_of_children),)),
    Planted("a lost lease runs again", {"I4"}, 60, changes=((Pool, "on_heartbeat", run_again_when_lost),)),
    Planted(
        "an outcome under the new fence", {"I25", "I14", "I4", "I6"}, 60,
        changes=((Pool, "_end_lease", report_under_the_new_fence),),
    ),
    Planted("claims beyond capacity", {"I22"}, 10, changes=((ClaimLoop, "_claim_request", claim_beyond_capacity),)),
    Planted("begun said too late", {"I14"}, 60, changes=((pool_module, "may_start_unmarked", lambda _: True),)),
    Planted("jobs of a dead child forgotten", {"I21", "I1"}, 20, changes=((Pool, "_end_all", forget_all),)),
    Planted("a dead child's waiting work charged", {"I25"}, 60, changes=((Pool, "_end_all", charge_what_never_began),)),
    Planted("everyone in a dead child blamed", {"I15", "I25"}, 60, changes=((Pool, "_end_all", blame_all),)),
    Planted("the jobs beside a late one pay", {"I25"}, 30, changes=((Pool, "_end_all", charge_the_killed),)),
    Planted("leases kept after a stop", {"I23"}, 60, changes=((Pool, "kill_children", kill_and_forget),)),
    Planted("time limits ignored", {"I1"}, 20, changes=((TimeLimits, "check", lambda *_: None),)),
    Planted("hanging jobs not ended", {"I1"}, 20, changes=((HangDetector, "check", lambda *_: None),)),
    Planted("suspects run as any other", {"I15", "I1"}, 20, changes=((Quarantine, "is_suspect", lambda *_: False),)),
    Planted("alone said too late", {"I15"}, 20, changes=((Quarantine, "_mark", mark_too_late),)),
    Planted("several alone at once", {"I15"}, 60, changes=((Probation, "is_free", True),)),
    Planted("everyone alone", {"I15"}, 10, changes=((Heartbeats, "_beat", beat_alone),)),
]  # fmt: skip

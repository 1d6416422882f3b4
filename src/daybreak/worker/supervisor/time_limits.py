"""Enforces the time limits of jobs and finds children that have stopped working."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from daybreak.core.model import HandedBack, Lease, Lost
from daybreak.policy import timeouts
from daybreak.worker.supervisor.child import Child, HeldLease
from daybreak.worker.supervisor.children import Children

_log = logging.getLogger("daybreak.worker")

STUCK_AFTER: Final = 0.05  # seconds without an outcome after which a child must return its waiting work
UNRESPONSIVE_AFTER: Final = 30.0  # seconds after which a child that starts none of its work is replaced
ASYNC_GRACE: Final = 2.0  # seconds for a cancelled async task to end before its child is killed


def written_limit(lease: Lease) -> timedelta | None:
    """How long an attempt may run, as long as no durations of such jobs have been measured."""
    return timeouts.limit_for(lease.spec.options, lease.timeouts)


class TimeLimits:
    """`end_all(child, description)` settles all leases of a child that is given up."""

    def __init__(self, children: Children, *, is_async: bool, end_all: Callable[[Child, str], None]) -> None:
        self._children = children
        self._is_async = is_async
        self._end_all = end_all

    def check(self, child: Child, now: float) -> None:
        """Stop jobs that are over their time limit, recall work behind a long job, and replace a child that is
        unresponsive."""
        running = child.running()
        for seq, since in running.items():
            held = child.held[seq]
            if held.call is not None and self._check_call(child, held, since, now):
                return
            if held.call is not None:
                continue
            if held.kill_at is not None:
                if now > held.kill_at:
                    self._kill_for(child, held)
                    return
            elif held.limit is not None and now - since > held.limit:
                self._time_out(child, held, now)
        if running and now - child.reported_at > STUCK_AFTER and child.has_waiting(running):
            child.recall()
        if child.held and not running and not child.leaving and now - child.reported_at > UNRESPONSIVE_AFTER:
            _log.error("a child holds jobs but does not start them: replacing it")
            child.leaving = True
            if not child.kill():
                self._children.abandon(child)
                self._end_all(child, "")

    def _check_call(self, child: Child, held: HeldLease, since: float, now: float) -> bool:
        """Check the call that a job is in, when it comes to the first job that is in the function. True if the child is
        killed for it: when all these jobs should have ended by now. The longest of their time limits counts."""
        fellows = child.fellows(held)
        if fellows[0] is not held:
            return False
        ends = [fellow.kill_at for fellow in fellows if fellow.kill_at is not None]
        if len(ends) == len(fellows):
            if now <= max(ends):
                return False
            self._kill_for(child, held)
            return True
        limits = [fellow.limit for fellow in fellows if fellow.limit is not None]
        if len(limits) == len(fellows) and now - since > max(limits):
            self._time_out(child, held, now)
        return False

    def end_hanging(self, child: Child, held: HeldLease, now: float) -> None:
        """Stop a job that hangs, unless it was asked to stop already."""
        if held.stop_reason is None:
            self._time_out(child, held, now)

    def _time_out(self, child: Child, held: HeldLease, now: float) -> None:
        for fellow in child.fellows(held):
            if fellow.stop_reason is None:
                fellow.stop_reason = "timeout"
            fellow.hang_message, fellow.stack, fellow.started_at = held.hang_message, held.stack, held.started_at
            fellow.kill_at = now
            if self._is_async:  # the task can be cancelled where it awaits something
                fellow.kill_at += ASYNC_GRACE
                child.stop_job(fellow.lease, "timeout")

    def _kill_for(self, child: Child, held: HeldLease) -> None:
        """Kill a child because of one job. Its other jobs go back, uncharged, once its last messages are read.

        If a job blocks the event loop, that job is to blame, also for others that could not end in time. Unless it was
        asked to stop itself, it counts as crashed, and runs alone next time."""
        if child.blamed is not None:
            return
        child.leaving = True
        blocker = child.handle.slot_table.blocker
        if blocker in child.held:
            blamed = {fellow.lease.seq for fellow in child.fellows(child.held[blocker])}
            for seq, other in child.held.items():
                if seq not in blamed and other.stop_reason == "timeout":
                    other.stop_reason = None
            child.blamed = (blocker, Lost("it blocked the event loop, so that other jobs could not end in time"))
        else:
            child.blamed = (held.lease.seq, HandedBack())
        if not child.kill():
            _log.error(
                "%s %s runs in a thread, which cannot be killed: its slot stays occupied until it returns",
                held.lease.spec.task,
                held.lease.job,
            )
            self._children.abandon(child)
            self._end_all(child, "")

"""Children under watch: who ran over its time, who is stuck behind a long job, who is deaf."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from daybreak.core.model import HandedBack, Lost
from daybreak.worker.supervisor.child import Child, Held
from daybreak.worker.supervisor.children import Children

_log = logging.getLogger("daybreak.worker")

STUCK_AFTER: Final = 0.05  # seconds; a child that ended nothing for so long gives back what waits in it
DEAF_AFTER: Final = 30.0
ASYNC_GRACE: Final = 2.0  # what an async task gets to end after its time limit, before its child is ended


class Limits:
    """`end_all` accounts for what a child held that is given up, with the words for how it died."""

    def __init__(self, children: Children, *, is_async: bool, end_all: Callable[[Child, str], None]) -> None:
        self._children = children
        self._is_async = is_async
        self._end_all = end_all

    def look_at(self, child: Child, now: float) -> None:
        begun = child.begun()
        for seq, since in begun.items():
            held = child.held[seq]
            if held.end_at is not None:
                if now > held.end_at:
                    self._stop_by_force(child, held)
                    return
            elif held.limit is not None and now - since > held.limit:
                held.asked = "timeout"
                held.end_at = now
                if self._is_async:  # it can be cancelled where it waits
                    held.end_at += ASYNC_GRACE
                    child.stop(seq, "timeout")
        if begun and len(child.held) > len(begun) and now - child.heard_at > STUCK_AFTER:
            child.recall()
        if child.held and not begun and not child.leaving and now - child.heard_at > DEAF_AFTER:
            _log.error("a child holds work and begins none of it: it is replaced")
            child.leaving = True
            if not child.end():
                self._children.abandon(child)
                self._end_all(child, "")

    def end_hanging(self, child: Child, held: Held, now: float) -> None:
        if held.asked is None:
            held.asked = "timeout"
            held.end_at = now
            if self._is_async:
                held.end_at += ASYNC_GRACE
                child.stop(held.lease.seq, "timeout")

    def _stop_by_force(self, child: Child, held: Held) -> None:
        """End a child for the sake of one job; its neighbours go back, uncharged, once its last words are read.

        Where one blocks the loop, that one is to blame, and for all that others could not end in time. If it was not
        asked to end itself it counts as dead, and runs alone next time."""
        if child.blamed is not None:
            return
        child.leaving = True
        blocker = child.handle.slot_table.blocker
        if blocker in child.held:
            for seq, other in child.held.items():
                if seq != blocker and other.asked == "timeout":
                    other.asked = None
            child.blamed = (blocker, Lost("it blocked the loop, so that others could not end in time"))
        else:
            child.blamed = (held.lease.seq, HandedBack())
        if not child.end():
            _log.error(
                "%s %s runs in a thread, which cannot be ended: its slot is lost until it returns",
                held.lease.spec.task,
                held.lease.job,
            )
            self._children.abandon(child)
            self._end_all(child, "")

"""Finds jobs that show no sign of life, and has them say where they stand.

A job on its own in a child lives while its processes do anything: progress, a log line, CPU time, output. Of jobs that
share a loop nobody can say whose doing it is: there only what a job itself says counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from weakref import WeakKeyDictionary

from daybreak.platform import Activity
from daybreak.worker.child import Child, Held
from daybreak.worker.stacks import asked_by_signal

_log = logging.getLogger("daybreak.worker")

SAMPLED_EVERY: Final = 0.5  # seconds
BUSY: Final = 0.02  # of one core: less is what an idle process does anyway
ANSWERS_WITHIN: Final = 1.0


class Hanging:
    """What one pool knows of its children's lives."""

    def __init__(self, *, is_async: bool) -> None:
        self._is_async = is_async
        self._seen: WeakKeyDictionary[Child, tuple[float, Activity]] = WeakKeyDictionary()  # when, and what it had done

    def find(self, child: Child, begun: dict[int, float], now: float) -> list[Held]:
        """Those of its jobs that hang and have said where they stand, or cannot."""
        watched = [(child.held[seq], since) for seq, since in begun.items() if _patience(child.held[seq]) is not None]
        if not watched:
            return []
        if not self._is_async and self._is_at_work(child, now):
            for held, _ in watched:
                held.alive_at = now
        return [held for held, since in watched if self._hangs(child, held, max(since, held.alive_at), now)]

    def _hangs(self, child: Child, held: Held, alive_at: float, now: float) -> bool:
        patience = _patience(held)
        if held.asked is not None or patience is None or now - alive_at <= patience:
            held.where_asked_at = None
            return False
        if held.where_asked_at is None:
            held.where_asked_at = now
            child.ask_where(held.lease.seq)
            return False
        if not held.stack and now - held.where_asked_at <= ANSWERS_WITHIN:
            return False
        signs = "no progress" if self._is_async else "no progress, CPU time or output"
        held.story = f"showed no sign of life for {now - alive_at:.0f} s: {signs}"
        return True

    def _is_at_work(self, child: Child, now: float) -> bool:
        at, before = self._seen.get(child, (0.0, None))
        if now - at < SAMPLED_EVERY:
            return False
        found = child.body.activity()
        if found is None:
            return now - child.spoke_at < SAMPLED_EVERY
        self._seen[child] = (now, found)
        if before is None:
            return True
        is_busy = found.cpu - before.cpu > BUSY * (now - at)
        return is_busy or found.written > before.written or child.spoke_at > at


def _patience(held: Held) -> float | None:
    hang = held.lease.spec.options.hang
    return None if hang is None else hang.total_seconds()


async def report(child: Child, held: Held) -> None:
    """Say what was found; one that holds its interpreter is asked by a signal."""
    if not held.stack and child.body.pid is not None:
        held.stack = await asyncio.to_thread(asked_by_signal, child.body.pid, child.body.scratch)
    spec, stack = held.lease.spec, held.stack.rstrip() or "(where it stands, it cannot say)"
    _log.error("%s %s: %s; it is ended. It stands at:\n%s", spec.task, spec.id, held.story, stack)

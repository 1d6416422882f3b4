"""Finds jobs that show no sign of life, has them say where they stand, and has them ended.

A job on its own in a child lives while it does anything: it speaks (progress, a checkpoint, a log line), or it or a
process that it started takes CPU time, reads, writes, or starts another. Of jobs that share a loop nobody can say
whose doing it is: there only what a job itself says counts, and so where deeds are not seen.

Time in which it stood in line for a core, on a machine with too much to do, is no silence of its own.

A job that hangs unseen costs a slot; one that is ended while it lives costs its work: in doubt it lives.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from daybreak.system import platform
from daybreak.system.platform import Doers, ProcessScan
from daybreak.worker.supervisor.child import Child, Held

_log = logging.getLogger("daybreak.worker")

OFTEN: Final = 10  # looks in the time that a job may be silent
EVERY: Final = (0.5, 10.0)  # seconds between two looks, at least and at most
CPU: Final = 0.05  # seconds, since the last sign of life: more is one
ANSWERS_WITHIN: Final = 1.0


class _Watched(NamedTuple):
    held: Held
    since: float
    patience: float

    def silent_for(self, now: float) -> float:
        return now - max(self.since, self.held.alive_at)

    def hangs(self, now: float) -> bool:
        return self.held.asked is None and self.silent_for(now) > self.patience


class HangDetector:
    """What one pool knows of its children's lives. `end` is told of each job that hangs, once it has said where."""

    def __init__(self, *, is_async: bool, end: Callable[[Child, Held, float], None]) -> None:
        self._end = end
        self._is_async = is_async
        self._sees_deeds = platform.SEES_DEEDS and not is_async
        self._before: WeakKeyDictionary[Child, Doers] = WeakKeyDictionary()  # at their last signs of life
        self._last: WeakKeyDictionary[Child, Doers] = WeakKeyDictionary()  # when last looked at
        self._glance: Future[tuple[float, dict[Child, Doers | None]]] | None = None
        self._glanced_at = 0.0
        # Of our own name: where jobs run in threads of this process, others' may be a job's.
        self._eye = ThreadPoolExecutor(1, thread_name_prefix="daybreak-hanging")
        self._asking: dict[Child, asyncio.Task[None]] = {}

    def look(self, children: Iterable[Child], now: float) -> None:
        """Returns at once: processes are looked at in a thread, and who hangs is asked beside."""
        watched = {child: jobs for child in children if (jobs := _watched(child))}
        if not self._is_async:
            for child, jobs in watched.items():
                _lives(jobs, child.spoke_at)
        if not self._sees_deeds:
            self._judge(watched, now)
        elif self._glance is None:
            self._look_at_deeds(watched, now)
        elif self._glance.done():
            # What was seen is weighed here and not where it comes in: a standstill of ours has just been forgiven.
            at, seen = self._glance.result()
            self._glance = None
            for child, found in seen.items():
                jobs = watched.get(child, [])
                if found is None or self._is_sign(child, found):
                    _lives(jobs, at)
                else:
                    _excuse(jobs, _stood_in_line(self._last[child], found), at)
                if found is not None:
                    self._last[child] = found
            self._judge({child: jobs for child, jobs in watched.items() if child in seen}, at)

    # -- what they do --------------------------------------------------------------------------------------------------

    def _look_at_deeds(self, watched: dict[Child, list[_Watched]], now: float) -> None:
        shortest = min((job.patience for jobs in watched.values() for job in jobs), default=None)
        if shortest is None or now - self._glanced_at < min(max(shortest / OFTEN, EVERY[0]), EVERY[1]):
            return
        self._glanced_at = now
        whom = [
            (child, self._before.get(child, {}), any(job.silent_for(now) > job.patience / 2 for job in jobs))
            for child, jobs in watched.items()
        ]
        self._glance = self._eye.submit(_glance_at, whom)

    def _is_sign(self, child: Child, found: Doers) -> bool:
        before = self._before.get(child)
        if before is not None and not _did_something(before, found):
            return False
        self._before[child] = found
        return True

    # -- those that hang -----------------------------------------------------------------------------------------------

    def _judge(self, watched: dict[Child, list[_Watched]], at: float) -> None:
        for child, jobs in watched.items():
            hung = [job for job in jobs if job.hangs(at)]
            if hung and child not in self._asking:
                asking = asyncio.get_running_loop().create_task(self._ask(child, hung))
                self._asking[child] = asking
                asking.add_done_callback(lambda _, child=child: self._asking.pop(child, None))  # type: ignore[misc]

    async def _ask(self, child: Child, hung: list[_Watched]) -> None:
        """All of one child at once; if it holds its interpreter, by a signal. Who comes to life meanwhile is left."""
        for job in hung:
            job.held.stack = ""
            child.ask_where(job.held.lease.seq)
        deadline = time.monotonic() + ANSWERS_WITHIN
        while not all(job.held.stack for job in hung) and time.monotonic() < deadline:  # noqa: ASYNC110 - a short while
            await asyncio.sleep(0.02)
        by_signal = ""
        if not all(job.held.stack for job in hung):
            by_signal = await asyncio.to_thread(child.handle.stack)
        now = time.monotonic()
        for job in hung:
            if child.held.get(job.held.lease.seq) is job.held and job.hangs(now):
                self._report(job, by_signal, now)
                self._end(child, job.held, now)

    def _report(self, job: _Watched, by_signal: str, now: float) -> None:
        held, spec = job.held, job.held.lease.spec
        signs = "no progress, CPU time or output" if self._sees_deeds else "no progress"
        held.begun_at = job.since
        held.stack = held.stack or by_signal
        held.story = f"showed no sign of life for {job.silent_for(now):.0f} s: {signs}"
        where = held.stack.rstrip() or "(where it stands, it cannot say)"
        _log.error("%s %s: %s; it is ended. It stands at:\n%s", spec.task, spec.id, held.story, where)


def _watched(child: Child) -> list[_Watched]:
    if all(held.lease.spec.options.hang is None for held in child.held.values()):
        return []
    begun = ((child.held[seq], since) for seq, since in child.begun().items())
    return [
        _Watched(held, since, hang.total_seconds())
        for held, since in begun
        if (hang := held.lease.spec.options.hang) is not None
    ]


def _lives(jobs: list[_Watched], at: float) -> None:
    for job in jobs:
        job.held.alive_at = max(job.held.alive_at, at)


def _excuse(jobs: list[_Watched], gap: float, at: float) -> None:
    """Up to this look at most: what was forgiven already, or came before its last word, counts once."""
    for job in jobs:
        alive_at = max(job.held.alive_at, job.since)
        job.held.alive_at = max(alive_at, min(alive_at + gap, at))


def _glance_at(whom: list[tuple[Child, Doers, bool]]) -> tuple[float, dict[Child, Doers | None]]:
    """In a thread. When it was, and what each had done by then; None if that could not be seen."""
    at, glance = time.monotonic(), ProcessScan()
    seen: dict[Child, Doers | None] = {}
    for child, known, thorough in whom:
        try:
            seen[child] = child.handle.activity(glance, known, thorough=thorough)
        except (OSError, ValueError):
            seen[child] = None
    return at, seen


def _did_something(before: Doers, found: Doers) -> bool:
    if not found.keys() <= before.keys():  # one was started
        return True
    pairs = [(before[doer], now) for doer, now in found.items()]
    if any(now.moved > was.moved for was, now in pairs):
        return True
    return sum(now.cpu - was.cpu for was, now in pairs) > CPU


def _stood_in_line(before: Doers, found: Doers) -> float:
    """The longest that one thread of theirs did."""
    pairs = ((before[doer].waited, now.waited) for doer, now in found.items() if doer in before)
    return max((now[one] - was[one] for was, now in pairs for one in now.keys() & was.keys()), default=0.0)

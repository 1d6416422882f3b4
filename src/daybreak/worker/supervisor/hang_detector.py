"""Finds jobs that show no sign of life for longer than their `hang` option allows, logs their stacks, and ends them.

A job that is alone in its child is alive while it does anything: it reports progress, a checkpoint or a log line, or
the job or a process that it started uses CPU time, reads, writes, or starts another process. For jobs that share an
event loop, activity cannot be attributed to one of them, so only what a job itself reports counts. The same holds on
systems where the activity of processes cannot be observed.

Time that a job spends waiting for a core on an overloaded machine does not count as silence.

A job that hangs unnoticed costs a slot; a job that is ended although it is alive costs its work. In doubt, a job counts
as alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from daybreak.system import platform
from daybreak.system.platform import Activities, ProcessScan
from daybreak.system.ports import Clock
from daybreak.worker.supervisor.child import Child, HeldLease

_log = logging.getLogger("daybreak.worker")

SCANS_PER_PERIOD: Final = 10  # scans in the time for which a job may be silent
MIN_SCAN_INTERVAL, MAX_SCAN_INTERVAL = 0.5, 10.0  # seconds
MIN_CPU: Final = 0.05  # seconds of CPU time since the last sign of life that count as one
STACK_TIMEOUT: Final = 1.0  # seconds for a child to answer with the stack of a job
STACK_POLL_INTERVAL: Final = 0.02  # seconds between two checks whether it has answered


class _WatchedJob(NamedTuple):
    """A running job with a `hang` option of `max_silence` seconds."""

    held: HeldLease
    since: float
    max_silence: float

    def silent_for(self, now: float) -> float:
        return now - max(self.since, self.held.alive_at)

    def hangs(self, now: float) -> bool:
        return self.held.stop_reason is None and self.silent_for(now) > self.max_silence


class HangDetector:
    """Watches the children of one pool. `end` is called for each job that hangs, after its stack was logged."""

    def __init__(self, clock: Clock, *, is_async: bool, end: Callable[[Child, HeldLease, float], None]) -> None:
        self._clock = clock
        self._end = end
        self._is_async = is_async
        self._sees_activity = platform.SEES_ACTIVITY and not is_async
        self._at_last_sign: WeakKeyDictionary[Child, Activities] = WeakKeyDictionary()
        self._at_last_scan: WeakKeyDictionary[Child, Activities] = WeakKeyDictionary()
        self._scan: asyncio.Future[tuple[float, dict[Child, Activities | None]]] | None = None
        self._scanned_at = 0.0
        # The name marks the thread as Daybreak's own: where jobs run in threads of this process, the activity of
        # threads with other names counts as that of jobs.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="daybreak-hanging")
        self._ending: dict[Child, asyncio.Task[None]] = {}

    def check(self, children: Iterable[Child], now: float) -> None:
        """Does not block: processes are scanned in a thread, and jobs that hang are ended in a task."""
        watched = {child: jobs for child in children if (jobs := _watched_jobs(child))}
        if not self._is_async:
            for child, jobs in watched.items():
                _set_alive(jobs, child.logged_at)
        if not self._sees_activity:
            self._end_hanging(watched, now)
        elif self._scan is None:
            self._start_scan(watched, now)
        elif self._scan.done():
            # Evaluate the scan here and not when it completes: the pool has just corrected the times of jobs for a
            # suspension of this process.
            at, activity = self._scan.result()
            self._scan = None
            for child, found in activity.items():
                jobs = watched.get(child, [])
                if found is None or self._is_sign_of_life(child, found):
                    _set_alive(jobs, at)
                else:
                    _excuse(jobs, _waited_for_core(self._at_last_scan[child], found), at)
                if found is not None:
                    self._at_last_scan[child] = found
            self._end_hanging({child: jobs for child, jobs in watched.items() if child in activity}, at)

    # -- activity ------------------------------------------------------------------------------------------------------

    def _start_scan(self, watched: dict[Child, list[_WatchedJob]], now: float) -> None:
        shortest = min((job.max_silence for jobs in watched.values() for job in jobs), default=None)
        if shortest is None:
            return
        if now - self._scanned_at < min(max(shortest / SCANS_PER_PERIOD, MIN_SCAN_INTERVAL), MAX_SCAN_INTERVAL):
            return
        self._scanned_at = now
        requests = [
            (child, self._at_last_sign.get(child, {}), any(job.silent_for(now) > job.max_silence / 2 for job in jobs))
            for child, jobs in watched.items()
        ]
        self._scan = asyncio.get_running_loop().run_in_executor(self._executor, _scan, requests, self._clock)

    def _is_sign_of_life(self, child: Child, found: Activities) -> bool:
        before = self._at_last_sign.get(child)
        if before is not None and not _is_active(before, found):
            return False
        self._at_last_sign[child] = found
        return True

    # -- jobs that hang ------------------------------------------------------------------------------------------------

    def _end_hanging(self, watched: dict[Child, list[_WatchedJob]], at: float) -> None:
        for child, jobs in watched.items():
            hung = [job for job in jobs if job.hangs(at)]
            if hung and child not in self._ending:
                ending = asyncio.get_running_loop().create_task(self._log_and_end(child, hung))
                self._ending[child] = ending
                ending.add_done_callback(lambda _, child=child: self._ending.pop(child, None))  # type: ignore[misc]

    async def _log_and_end(self, child: Child, hung: list[_WatchedJob]) -> None:
        """Get the stacks of these jobs of one child, by a signal if its interpreter does not answer, and end the jobs
        that still hang then."""
        for job in hung:
            job.held.stack = ""
            child.request_stack(job.held.lease)
        deadline = self._clock.now() + STACK_TIMEOUT
        while not all(job.held.stack for job in hung) and self._clock.now() < deadline:
            await self._clock.sleep(STACK_POLL_INTERVAL)
        stack_by_signal = ""
        if not all(job.held.stack for job in hung):
            stack_by_signal = await asyncio.to_thread(child.handle.stack)
        now = self._clock.now()
        for job in hung:
            if child.held.get(job.held.lease.seq) is job.held and job.hangs(now):
                self._log_hang(job, stack_by_signal, now)
                self._end(child, job.held, now)

    def _log_hang(self, job: _WatchedJob, stack_by_signal: str, now: float) -> None:
        held, spec = job.held, job.held.lease.spec
        signs = "no progress, CPU time or output" if self._sees_activity else "no progress"
        held.started_at = job.since
        held.stack = held.stack or stack_by_signal
        held.hang_message = f"showed no sign of life for {job.silent_for(now):.0f} s: {signs}"
        stack = held.stack.rstrip() or "(not available)"
        _log.error("%s %s: %s; ending it. Its stack:\n%s", spec.task, spec.id, held.hang_message, stack)


def _watched_jobs(child: Child) -> list[_WatchedJob]:
    if all(held.lease.spec.options.hang is None for held in child.held.values()):
        return []
    watched = []
    for seq, since in child.running().items():
        held = child.held[seq]
        hang = held.lease.spec.options.hang
        if hang is not None and child.fellows(held)[0] is held:  # of a call the first job stands for all
            watched.append(_WatchedJob(held, since, hang.total_seconds()))
    return watched


def _set_alive(jobs: list[_WatchedJob], at: float) -> None:
    for job in jobs:
        job.held.alive_at = max(job.held.alive_at, at)


def _excuse(jobs: list[_WatchedJob], wait: float, at: float) -> None:
    """Do not count `wait` seconds as silence, but never move a sign of life beyond this scan: that would excuse the
    same time twice."""
    for job in jobs:
        alive_at = max(job.held.alive_at, job.since)
        job.held.alive_at = max(alive_at, min(alive_at + wait, at))


def _scan(requests: list[tuple[Child, Activities, bool]], clock: Clock) -> tuple[float, dict[Child, Activities | None]]:
    """Runs in a thread. The time of the scan, and the activity of each child so far; None if it could not be read."""
    at, scan = clock.now(), ProcessScan()
    activity: dict[Child, Activities | None] = {}
    for child, known, thorough in requests:
        try:
            activity[child] = child.handle.activity(scan, known, thorough=thorough)
        except (OSError, ValueError):
            activity[child] = None
    return at, activity


def _is_active(before: Activities, found: Activities) -> bool:
    if not found.keys() <= before.keys():  # a process was started
        return True
    pairs = [(before[process], now) for process, now in found.items()]
    if any(now.moved > was.moved for was, now in pairs):
        return True
    return sum(now.cpu - was.cpu for was, now in pairs) > MIN_CPU


def _waited_for_core(before: Activities, found: Activities) -> float:
    """The longest time for which one of the threads waited for a core since the last scan."""
    pairs = ((before[process].waited, now.waited) for process, now in found.items() if process in before)
    return max((now[thread] - was[thread] for was, now in pairs for thread in now.keys() & was.keys()), default=0.0)

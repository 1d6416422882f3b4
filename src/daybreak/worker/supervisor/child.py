"""One child as the supervisor sees it: which leases it holds, how fast it works, and the messages to and from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import Struct

from daybreak.core.model import Lease, Outcome
from daybreak.system.ports import Clock
from daybreak.worker.launcher import ChildHandle, Connection
from daybreak.worker.wire import (
    CheckpointSaved,
    Ended,
    Exit,
    FileMoved,
    GetStack,
    ListenerThread,
    LogLine,
    MoveFile,
    Output,
    Progress,
    Ready,
    Recall,
    Report,
    Returned,
    Run,
    RunCall,
    SaveCheckpoint,
    SetupFailed,
    Stack,
    Stop,
    StopReason,
    Work,
    frame,
)

_job_log = logging.getLogger("daybreak.job")

MIN_AHEAD: Final = 0.015  # seconds of measured work that a child may hold beyond its running jobs, at least
RATE_WINDOW: Final = 0.002  # seconds of work after which the rate of a child is updated
MAX_JOBS_AHEAD: Final = 256
EXIT_POLL_INTERVAL: Final = 0.01  # seconds between two checks whether a child has ended
# Seconds; a child with one slot gets no more than needed of shorter jobs, so that an urgent job does not wait for them.
VERY_SHORT_JOB: Final = 0.0005
# Seconds; shorter jobs compute rather than wait, so running many of them at once gains nothing.
SHORT_JOB: Final = 0.002


class HeldLease(Struct, eq=False):
    """A lease whose job is in a child. Times are of the steady clock, in seconds.

    `stop_reason`: why the job was asked to end; after `kill_at` its child is killed. `alive_at`: its latest sign of
    life. For a job that is ended because it hangs, `hang_message` says how long it was silent, `stack` where it was,
    and `started_at` when it had started.

    `call` is the call that the job is in, if it is not alone in it; `ended` is then its outcome, once the child has
    reported it: it is passed on when the whole call has ended."""

    lease: Lease
    limit: float | None
    stop_reason: StopReason | None = None
    kill_at: float | None = None
    alone: bool = False
    alive_at: float = 0.0
    started_at: float = 0.0
    stack: str = ""
    hang_message: str = ""
    call: HeldCall | None = None
    ended: Ended | None = None


class HeldCall(Struct, eq=False):
    """A call of several jobs that is in a child. `open` is how many of its jobs have no outcome yet."""

    members: list[HeldLease]
    open: int

    @property
    def first(self) -> int:
        """The seq by which the child knows the call."""
        return self.members[0].lease.seq


class ChildListener(Protocol):
    """What a child reports to: its pool."""

    def limit_of(self, lease: Lease) -> float | None: ...

    def trace_of(self, lease: Lease) -> str | None: ...

    def on_ready(self, child: Child, tasks: frozenset[tuple[str, int]]) -> None: ...

    def on_ended(self, child: Child, ended: list[tuple[HeldLease, Ended]]) -> None: ...

    def on_returned(self, child: Child, returned: list[HeldLease]) -> None: ...

    def on_progress(self, lease: Lease, progress: Progress) -> None: ...

    def on_output(self, lease: Lease, output: Output) -> None: ...

    def on_checkpoint(self, child: Child, lease: Lease, request: SaveCheckpoint) -> None: ...

    def on_move_file(self, child: Child, held: HeldLease, request: MoveFile) -> None: ...

    def on_setup_failed(self, child: Child, error: str) -> None: ...

    def on_disconnected(self, child: Child) -> None: ...


@dataclass(eq=False)
class Child:
    """`blamed`: the child is being killed because of this job, which gets this outcome; its other jobs go back
    uncharged.

    `reserved`: the child gets no work until it is idle, and then one job that must run alone. `solo`: the child is
    there only for such jobs."""

    handle: ChildHandle
    slots: int
    listener: ChildListener
    clock: Clock
    solo: bool = False
    reserved: bool = False
    held: dict[int, HeldLease] = field(default_factory=dict)
    calls: dict[int, HeldCall] = field(default_factory=dict)  # by the seq of their first job
    ready: bool = False
    was_ready: bool = False
    exit_sent_at: float | None = None
    ended_at: float | None = None
    leaving: bool = False
    gone: bool = False
    blamed: tuple[int, Outcome] | None = None
    jobs_done: int = 0
    ahead: float = MIN_AHEAD
    _counted: int = 0
    _busy_for: float = 0.0
    _rate: float = 0.0
    _mean: float = 1.0
    reported_at: float = 0.0
    logged_at: float = 0.0
    _connection: Connection | None = None

    def __post_init__(self) -> None:
        self.reported_at = self.clock.now()

    async def connect(self) -> None:
        self._connection = await self.handle.connect(self.on_message, self.on_disconnect)

    # -- work ----------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more jobs the child may be given: its free slots, and a few milliseconds of work ahead."""
        if not self.takes_work or self.reserved or self.runs_alone:
            return 0
        return self._capacity() - self.load

    @property
    def load(self) -> int:
        """How many slots the held leases take, or will take: a call takes one."""
        if not self.calls:
            return len(self.held)
        return len(self.calls) + sum(held.call is None for held in self.held.values())

    @property
    def runs_alone(self) -> bool:
        """Whether the child holds a job that must run alone. Such a job is always the first that it was given."""
        return bool(self.held) and next(iter(self.held.values())).alone

    def _capacity(self) -> int:
        """Jobs that the child may hold: one per slot, and a little work ahead.

        Very short jobs only compute, so they would queue for the same core. Of those the child holds what it can do in
        that little time, so that an urgent job waits for few others."""
        ahead_for = self.ahead
        # A child with one slot reports several jobs together, so the supervisor learns late how few it has left.
        if self.slots == 1 and self._mean >= VERY_SHORT_JOB:
            ahead_for = 2 * self.ahead
        ahead = min(int(self.rate * ahead_for), MAX_JOBS_AHEAD)
        if self._rate and self._mean < SHORT_JOB:
            return min(self.slots, max(8, int(self._rate * self._mean * 2))) + ahead
        return self.slots + ahead

    @property
    def rate(self) -> float:
        """Jobs per second. Twice the recent rate, as far as the slots allow it, because a child that waits for work
        shows a lower rate than it could reach."""
        return min(2 * self._rate, self.slots / max(self._mean, 1e-6))

    @property
    def seconds_ahead(self) -> float:
        """Seconds of work that the child holds beyond its running jobs."""
        ahead = self.load - self.slots
        if ahead > 0:
            rate = self.rate
            if rate:
                return ahead / rate
        return 0.0

    @property
    def takes_work(self) -> bool:
        return self.ready and not self.leaving and not self.gone

    @property
    def is_idle(self) -> bool:
        return self.takes_work and not self.held

    def give(self, leases: Iterable[Lease], *, alone: bool = False) -> None:
        """Send the jobs of these leases to the child."""
        if not self.held:
            self.reported_at = self.clock.now()
        limit_of, trace_of, batch = self.listener.limit_of, self.listener.trace_of, []
        for lease in leases:
            self.held[lease.seq] = HeldLease(lease, limit_of(lease), alone=alone)
            batch.append(work_of(lease, trace_of(lease)))
        self._send(Run(batch))

    def give_call(self, leases: list[Lease]) -> None:
        """Send these jobs of a batch task to the child, for one call of its function."""
        if len(leases) == 1:
            self.give(leases)
            return
        if not self.held:
            self.reported_at = self.clock.now()
        members = [HeldLease(lease, self.listener.limit_of(lease)) for lease in leases]
        call = HeldCall(members, len(members))
        for held in members:
            held.call = call
            self.held[held.lease.seq] = held
        self.calls[call.first] = call
        self._send(RunCall([work_of(lease, self.listener.trace_of(lease)) for lease in leases]))

    def stop_job(self, lease: Lease, reason: StopReason) -> None:
        self._send(Stop(lease.seq, lease.fence, reason))

    def confirm_checkpoint(self, request: SaveCheckpoint, *, held: bool) -> None:
        self._send(CheckpointSaved(request.seq, request.token, held))

    def answer(self, moved: FileMoved) -> None:
        self._send(moved)

    def request_stack(self, lease: Lease) -> None:
        self._send(GetStack(lease.seq, lease.fence))

    def recall(self) -> None:
        """Ask for the work that has not started, and give no work ahead until the child is measured again."""
        self._rate, self._mean = 0.0, 1.0
        self._send(Recall())

    def send_exit(self) -> None:
        self.leaving = True
        self.exit_sent_at = self.exit_sent_at or self.clock.now()
        self._send(Exit())

    def _send(self, message: Any) -> None:
        # Do not write to a dead child: the error would close the socket before its last messages are read.
        if self._connection is not None and not self.gone and self.ended_at is None:
            self._connection.write(frame(message))

    def kill(self) -> bool:
        """End the child now. False if that is not possible, because it is a thread."""
        return self.handle.end()

    # -- messages ------------------------------------------------------------------------------------------------------

    def on_message(self, message: Any) -> None:
        match message:
            case Report(ended):
                self._on_report(ended)
            case Progress(seq, fence):
                held = self._find(seq, fence)
                if held is not None:
                    for fellow in self._alive(held):
                        self.listener.on_progress(fellow.lease, message)
            case Output(seq, fence):
                held = self._find(seq, fence)
                if held is not None:
                    self._alive(held)
                    self.listener.on_output(held.lease, message)
            case SaveCheckpoint(seq, fence):
                held = self._find(seq, fence)
                if held is None:
                    self.confirm_checkpoint(message, held=False)
                else:
                    self._alive(held)
                    self.listener.on_checkpoint(self, held.lease, message)
            case MoveFile(seq, fence):
                held = self._find(seq, fence)
                if held is None:
                    self._send(FileMoved(seq, message.token, "the lease of this job was lost"))
                else:
                    self._alive(held)
                    self.listener.on_move_file(self, held, message)
            case Returned(jobs):
                returned = [held for seq, fence in jobs if (held := self._find(seq, fence)) is not None]
                for held in returned:
                    self._forget(held)
                self.listener.on_returned(self, returned)
            case Ready(tasks):
                self.ready = self.was_ready = True
                self.listener.on_ready(self, frozenset(tasks))
            case LogLine(level, line):
                self.logged_at = self.clock.now()
                _job_log.log(level, "%s", line)
            case Stack(seq, fence, text):
                held = self._find(seq, fence)
                if held is not None:
                    held.stack = text
            case ListenerThread(thread):
                self.handle.listener = thread
            case SetupFailed(error):
                self.listener.on_setup_failed(self, error)

    def _find(self, seq: int, fence: int) -> HeldLease | None:
        """The lease of a job under this fence. None for an older run of a job that was claimed again meanwhile."""
        held = self.held.get(seq)
        if held is None or held.lease.fence != fence:
            return self._find_in_calls(seq, fence)
        return held

    def _find_in_calls(self, seq: int, fence: int) -> HeldLease | None:
        """A job of a call that this worker has claimed again since then, so that `held` has its newer lease."""
        for call in self.calls.values():
            for held in call.members:
                if held.lease.seq == seq and held.lease.fence == fence:
                    return held
        return None

    def _alive(self, held: HeldLease) -> list[HeldLease]:
        """Note a sign of life of a job, and of all that are in the function together with it."""
        now, fellows = self.clock.now(), self.fellows(held)
        for fellow in fellows:
            fellow.alive_at = now
        return fellows

    def _forget(self, held: HeldLease) -> None:
        if self.held.get(held.lease.seq) is held:
            del self.held[held.lease.seq]
        if held.call is not None:
            self.calls.pop(held.call.first, None)

    def _on_report(self, ended: list[Ended]) -> None:
        known: list[tuple[HeldLease, Ended]] = []
        for end in ended:
            held = self.held.get(end.seq)
            if held is None or held.lease.fence != end.fence:
                held = self._find_in_calls(end.seq, end.fence)
            if held is None:
                continue
            if held.call is None:
                del self.held[end.seq]
                known.append((held, end))
            else:
                known += self._end_in_call(held, held.call, end)
        self.jobs_done += len(ended)
        now = self.clock.now()
        self._measure(_pieces(ended, known), max(now - self.reported_at, 0.0))
        self.reported_at = now
        self.listener.on_ended(self, known)

    def _end_in_call(self, held: HeldLease, call: HeldCall, end: Ended) -> list[tuple[HeldLease, Ended]]:
        """Note the outcome of a job of a call. Returns those of all its jobs once the last is known."""
        if held.ended is None:
            held.ended = end
            call.open -= 1
        if call.open:
            return []
        for member in call.members:
            self._forget(member)
        return [(member, member.ended) for member in call.members if member.ended is not None]

    def _measure(self, ended: list[Ended], busy_for: float) -> None:
        """Update the rate and the mean duration of jobs.

        The rate is taken over a window, because two reports may come within microseconds. The mean rises at once and
        falls slowly, because work held ahead would have to wait for a long job."""
        self._counted += len(ended)
        self._busy_for += busy_for
        if self._busy_for >= RATE_WINDOW:
            self._rate += 0.3 * (self._counted / self._busy_for - self._rate)
            self._counted, self._busy_for = 0, 0.0
        if ended:
            mean = sum([end.ran_for for end in ended]) / len(ended)
            if mean > self._mean:
                self._mean = mean
            else:
                self._mean += 0.3 * (mean - self._mean)

    def on_disconnect(self) -> None:
        if not self.gone:
            self.gone = True
            if self._connection is not None:
                self._connection.close()
            self.listener.on_disconnected(self)

    # -- running jobs --------------------------------------------------------------------------------------------------

    def extend_deadlines(self, pause: float) -> None:
        """Do not count `pause` seconds, in which the supervisor itself was suspended, against the jobs of this
        child."""
        self.reported_at += pause
        running = self.running()
        for seq, held in self.held.items():
            if seq in running:  # without a sign of life so far, the job counts as alive since its start
                held.alive_at = max(held.alive_at, running[seq]) + pause
            if held.limit is not None:
                held.limit += pause
            if held.kill_at is not None:
                held.kill_at += pause

    def running(self) -> dict[int, float]:
        """The jobs that have started, each with its start in seconds of the steady clock. Of a call, those that are in
        the function now, since it was called with them."""
        running = self.handle.slot_table.running()
        if not self.calls:
            return {seq: since for seq, since in running.items() if seq in self.held}
        found = {}
        for seq, since in running.items():
            if seq in self.calls:
                for held in self._in_function(self.calls[seq]):
                    found[held.lease.seq] = since
            elif seq in self.held:
                found[seq] = since
        return found

    def _in_function(self, call: HeldCall) -> list[HeldLease]:
        """The jobs of a call that are in the function now; none if it has not started."""
        part = self.handle.slot_table.parts().get(call.first, range(0))
        return [
            held
            for held in call.members[part.start : part.stop]
            if held.ended is None and self.held.get(held.lease.seq) is held
        ]

    def fellows(self, held: HeldLease) -> list[HeldLease]:
        """The job, and all that are in the function together with it."""
        if held.call is None:
            return [held]
        fellows = self._in_function(held.call)
        return fellows if held in fellows else [held]

    def has_waiting(self, running: dict[int, float]) -> bool:
        """Whether the child holds jobs that it has not started."""
        if not self.calls:
            return len(self.held) > len(running)
        started = self.handle.slot_table.running()
        return any(_slot_of(held) not in started for held in self.held.values())

    def has_started(self, held: HeldLease) -> bool:
        """Whether the job, or the call that it is in, has started."""
        return _slot_of(held) in self.handle.slot_table.running()

    def unreported(self) -> set[int]:
        """The jobs that have ended, as far as the child could say, and whose outcome it has not reported."""
        ended = self.handle.slot_table.ended()
        found = ended & self.held.keys()
        for call in self.calls.values():
            if call.first in ended:
                found.update(held.lease.seq for held in call.members if held.ended is None)
        return {seq for seq in found if self.held[seq].ended is None}


def _slot_of(held: HeldLease) -> int:
    """The job that stands in the slot of this job: that of a call is its first."""
    return held.lease.seq if held.call is None else held.call.first


def _pieces(ended: list[Ended], known: list[tuple[HeldLease, Ended]]) -> list[Ended]:
    """What to measure of these reports: a call is one piece of work, whatever it did for how many jobs."""
    if len(known) == len(ended) and not any(held.call for held, _ in known):
        return ended
    return [end for held, end in known if held.call is None or held is held.call.members[0]]


def work_of(lease: Lease, trace: str | None = None) -> Work:
    """What a child needs to run the job of a lease."""
    spec = lease.spec
    return Work(
        lease.seq,
        spec.id,
        spec.task,
        spec.version,
        spec.args,
        spec.queue,
        lease.priority,
        lease.attempt,
        spec.options.retry.attempts,
        lease.fence,
        lease.checkpoint,
        spec.tags,
        spec.meta or None,
        spec.owner,
        spec.run,
        trace,
    )


async def wait_for_end(handle: ChildHandle, clock: Clock, exit_timeout: float) -> str:
    """Wait for the end of a child that has disconnected, and describe it.

    A child that was told to exit gets `exit_timeout` seconds for its exit handlers; with 0 it is killed at once."""
    deadline = clock.now() + exit_timeout
    while handle.exit_description() is None and clock.now() < deadline:
        await clock.sleep(EXIT_POLL_INTERVAL)
    if handle.exit_description() is None or not exit_timeout:
        handle.end()
    with contextlib.suppress(Exception):
        await asyncio.get_running_loop().run_in_executor(None, handle.clean_up)
    return handle.exit_description() or "it could not be ended"

"""A child process without a process: it speaks the wire of a real one, and its jobs end as the seed decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from daybreak.core.model import Failure
from daybreak.system import platform
from daybreak.worker.child.work_queue import WorkQueue
from daybreak.worker.launcher import ChildUsage, Connection
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import (
    Ended,
    Exit,
    Frames,
    GetStack,
    Hello,
    Output,
    Progress,
    Ready,
    Recall,
    Report,
    Returned,
    Run,
    RunCall,
    SaveCheckpoint,
    Stack,
    Stop,
    Work,
    to_child,
)
from harness.batch_call import RunningCall, poison
from harness.history import Held, JobRun

if TYPE_CHECKING:
    from harness.process import Process
    from harness.site import Site

LATENCY: Final = 0.0001  # seconds that a message takes
STATUS_AFTER_STOP: Final[dict[str, Any]] = {"cancel": "cancelled", "suspend": "suspended", "timeout": "timed out"}
NOT_NOW: Final = Failure(message="not now", kinds=("ConnectionError",))
NEVER: Final = Failure(message="never", kinds=("ValueError",))
WHO_KNOWS: Final = Failure(message="who knows", kinds=("Oddity",))


@dataclass(slots=True, eq=False)
class RunningJob:
    """`deaf` jobs never look whether they were asked to stop."""

    work: Work
    slot: int
    started_at: float
    run: JobRun
    deaf: bool
    hangs: bool = False


class SimChild:
    """The handle of a child, and the child itself. It goes on while its supervisor is stopped, and dies with it."""

    def __init__(self, site: Site, supervisor: Process, hello: Hello, tasks: frozenset[tuple[str, int]]) -> None:
        self.slot_table = SlotTable(hello.slots)
        self.listener: int | None = None
        self.process = site.process("child")
        self._site = site
        self._supervisor = supervisor
        self._slots = hello.slots
        self._is_async = hello.is_async
        self._waiting = WorkQueue()
        self._running: list[RunningJob] = []
        self._calls: list[RunningCall] = []
        self._exit: str | None = None
        self._leaving = False
        self._frames = Frames(to_child)
        self._inbox: deque[Any] = deque()
        self._outbox: deque[Any] = deque()
        self._on_message: Callable[[Any], None] | None = None
        self._on_disconnect: Callable[[], None] | None = None
        supervisor.at_end(self._die_with_supervisor)
        imports_for = 0.05 if site.calm else site.fate.uniform(0.02, 0.6)
        self.process.call_later(imports_for, self._send, Ready(sorted(tasks)))

    # -- the handle ----------------------------------------------------------------------------------------------------

    async def connect(self, on_message: Callable[[Any], None], on_disconnect: Callable[[], None]) -> Connection:
        self._on_message, self._on_disconnect = on_message, on_disconnect
        for _ in self._outbox:
            self._supervisor.call_later(LATENCY, self._deliver)
        return self

    @property
    def pid(self) -> int | None:
        return None

    def end(self) -> bool:
        self._die("its process was ended by SIGKILL", "killed")
        return True

    def exit_description(self) -> str | None:
        return self._exit

    def memory(self) -> int | None:
        return None

    def usage(self, limit: int) -> ChildUsage:
        return ChildUsage(0, None)

    def is_stopped(self) -> bool:
        return self.process.is_frozen

    def activity(
        self, scan: platform.ProcessScan, known: platform.Activities, *, thorough: bool
    ) -> platform.Activities:
        """Jobs compute all the time, but for those that hang."""
        is_busy = not all(job.hangs for job in (*self._running, *self._calls))
        return {(1, 1): platform.ProcessActivity(cpu=self._site.loop.time() if is_busy else 0.0)}

    def stack(self) -> str:
        return "taken by a signal"

    def clean_up(self) -> None:
        pass

    # -- the connection, as the supervisor has it ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._inbox.append(message)
            self.process.call_later(LATENCY, self._receive)

    def close(self) -> None:
        self._die("its process ended with exit code 0", "killed")

    def _send(self, message: Any) -> None:
        """What is sent arrives also when the child is dead by then. None is the end of the stream."""
        self._outbox.append(message)
        if self._on_message is not None:
            self._supervisor.call_later(LATENCY, self._deliver)

    def _deliver(self) -> None:
        message = self._outbox.popleft()
        assert self._on_message is not None
        assert self._on_disconnect is not None
        if message is None:
            self._on_disconnect()
        else:
            self._on_message(message)

    # -- inside the child ----------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        match message := self._inbox.popleft():
            case Run(batch):
                self._waiting.add(batch)
                self._start()
            case RunCall():
                self._waiting.add([message])
                self._start()
            case Stop(seq, fence, reason):
                for job in self._jobs(seq, fence):
                    self._stop(job, reason)
                for call in self._calls:
                    call.stop(seq, fence, reason)
            case Recall():
                self._send(Returned(self._waiting.clear()))
            case GetStack(seq, fence):
                if any(not job.hangs for job in self._jobs(seq, fence)):
                    self._send(Stack(seq, fence, "here"))
            case Exit():
                self._leaving = True
                self._exit_if_idle()

    def _jobs(self, seq: int, fence: int) -> list[RunningJob]:
        return [job for job in self._running if (job.work.seq, job.work.fence) == (seq, fence)]

    def _start(self) -> None:
        while len(self._running) + len(self._calls) < self._slots and (work := self._waiting.pop()) is not None:
            site = self._site
            beside = (
                *(job.run.held for job in self._running),
                *(run.held for call in self._calls for run in call.runs),
            )
            if isinstance(work, RunCall):
                self._start_call(work.call, beside)
                continue
            run = site.history.run_starts(self._supervisor.name, self.process.name, work, beside)
            slot = self.slot_table.begin(work.seq, at=site.world.steady())
            job = RunningJob(work, slot, site.loop.time(), run, deaf=site.fate.random() < 0.2)
            self._running.append(job)
            self._plan_end(job)

    def _start_call(self, works: list[Work], beside: tuple[Held, ...]) -> None:
        history, held = self._site.history, [(work.seq, work.fence) for work in works]
        history.batches.append(held)
        runs = [
            history.run_starts(
                self._supervisor.name, self.process.name, work, (*beside, *held[:place], *held[place + 1 :])
            )
            for place, work in enumerate(works)
        ]
        call = RunningCall(
            self._site, self.process, self.slot_table, runs, send=self._send, die=self._die, over=self._end_call
        )
        self._calls.append(call)
        call.go_on()

    def _end_call(self, call: RunningCall) -> None:
        self._calls.remove(call)
        self._start()
        self._exit_if_idle()

    def _plan_end(self, job: RunningJob) -> None:
        work, fate, key = job.work, self._site.fate, job.run.held
        seconds = fate.uniform(6.0, 18.0) if "long" in work.tags else fate.uniform(0.05, 3.0) ** 2
        if "quick" in work.tags:
            seconds = fate.uniform(0.029, 0.031)
        elif "deadly" in work.tags:
            seconds = min(seconds, 3.0)  # one that kills later is found only in a longer probation
        if "hangs" in work.tags and fate.random() < 0.6:
            self._site.saw("job hung")
            job.hangs = True
            return
        self.process.call_later(seconds, self._reach_end, job)
        if fate.random() < 0.3:
            self._tell(job, fate.uniform(0, seconds), Progress(*key, round(fate.random(), 3), ""))
        if fate.random() < 0.1:
            self._tell(job, fate.uniform(0, seconds), SaveCheckpoint(*key, 1, b'{"n": 1}'))
        if fate.random() < 0.1:
            self._tell(job, fate.uniform(0, seconds), Output(*key, b"a line\n", 0))

    def _tell(self, job: RunningJob, seconds: float, message: Any) -> None:
        self.process.call_later(seconds, lambda: self._send(message) if job in self._running else None)

    def _stop(self, job: RunningJob, reason: str) -> None:
        if not job.deaf and not job.hangs:
            self._site.saw(f"{reason} of running")
            self.process.call_later(
                self._site.fate.uniform(0, 0.3), self._finish, job, STATUS_AFTER_STOP.get(reason, "handed back")
            )

    def _reach_end(self, job: RunningJob) -> None:
        fate = self._site.fate
        if job not in self._running:
            return
        if "deadly" in job.work.tags:
            self._site.saw("worker killed by its job")
            self._site.history.crash(self._supervisor.name)
            self._supervisor.kill()
        elif "fatal" in job.work.tags or (not self._site.calm and fate.random() < 0.02):
            self._site.saw("child killed by its job")
            self._die("its process was ended by SIGSEGV", "crashed")
        else:
            self._finish_by_chance(job)

    def _finish_by_chance(self, job: RunningJob) -> None:
        if "poison" in job.work.tags:
            self._finish(job, "failed", poison(job.work))
            return
        if "stumbles" in job.work.tags and job.work.attempt == 1:
            self._finish(job, "failed", NOT_NOW)
            return
        roll = self._site.fate.random()
        if self._site.calm and roll > 0.7:
            roll /= 2  # once it is quiet, most work ends well
        if roll < 0.7:
            self._finish(job, "done")
        elif roll < 0.82:
            self._finish(job, "failed", NOT_NOW)
        elif roll < 0.87:
            self._finish(job, "failed", NEVER)
        elif roll < 0.91:
            self._finish(job, "failed", WHO_KNOWS)
        elif roll < 0.96:
            self._finish(job, "suspended")
        else:
            self._finish(job, "done", lose_report=not self._site.calm)

    def _finish(
        self, job: RunningJob, status: Any, failure: Failure | None = None, *, lose_report: bool = False
    ) -> None:
        if job not in self._running:
            return
        self._running.remove(job)
        self.slot_table.end(job.slot)
        if lose_report:
            self._site.saw("child died before it reported")
            self._site.history.run_ends(job.run, "unreported", was_alone=not self._in_function)
            self._die("its process was ended by SIGSEGV", "crashed")
            return
        self._site.history.run_ends(job.run, status, was_alone=not self._in_function)
        result = f"{job.work.job}/{job.work.fence}".encode() if status == "done" else None
        self._send(Report([Ended(*job.run.held, status, self._site.loop.time() - job.started_at, result, failure)]))
        self._start()
        self._exit_if_idle()

    @property
    def _in_function(self) -> int:
        """How many jobs are in a function now."""
        return len(self._running) + sum(len(call.in_function) for call in self._calls)

    def _exit_if_idle(self) -> None:
        if self._leaving and not self._running and not self._calls and not len(self._waiting):
            self._die("its process ended with exit code 0", "killed")

    def _die_with_supervisor(self) -> None:
        self._die("its process was ended by SIGKILL", "killed")

    def _die(self, description: str, how: str) -> None:
        if self._exit is not None:
            return
        self._exit = description
        was_alone = self._in_function == 1
        for job in self._running:
            self._site.history.run_ends(job.run, how, was_alone=was_alone)
        for call in self._calls:
            call.died(how, was_alone=was_alone)
        self._send(None)
        self.process.kill()

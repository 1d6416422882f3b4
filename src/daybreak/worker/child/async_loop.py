"""The main loop of a child for async tasks: receive work, run many jobs on one event loop, report outcomes.

Outcomes are sent in batches: at the end of the loop iteration in which a job ended, or up to 2.5 ms after the previous
batch while more work is waiting. A thread watches the event loop and names the job that blocks it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from daybreak.tasks.context import Context, TaskReporter
from daybreak.worker.child.calls import BatchCall
from daybreak.worker.child.job_output import FLUSH_INTERVAL as OUTPUT_INTERVAL
from daybreak.worker.child.job_output import Outputs
from daybreak.worker.child.reporting import JobReporter, Reporting, encode_report, forward_logs
from daybreak.worker.child.runner import Runner, ended_by_error
from daybreak.worker.child.stacks import stack_of_task
from daybreak.worker.child.work_queue import Item, WorkQueue, works_of
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import (
    CheckpointSaved,
    Ended,
    Exit,
    FileMoved,
    GetStack,
    Recall,
    Returned,
    Run,
    RunCall,
    Stack,
    Stop,
    Work,
    frame,
    to_child,
)
from daybreak.worker.wire_reader import WireReader

FLUSH_INTERVAL: Final = 0.0025  # seconds between two batches of outcomes while more work is waiting
BLOCKED_AFTER: Final = 0.25  # seconds without a loop iteration after which the loop counts as blocked
# Checks without a running job after which the watching thread sleeps until a job wakes it. Waking a thread delays the
# start of that job, so the thread stays awake for a while between jobs.
IDLE_CHECKS: Final = 40
MAX_STARTS_PER_ITERATION: Final = 8


class _RunningJob:
    """A job that has started. `task` is set right after the job is registered."""

    __slots__ = ("ctx", "reporter", "slot", "task")
    task: asyncio.Task[None]

    def __init__(self, ctx: Context, reporter: JobReporter, slot: int) -> None:
        self.ctx = ctx
        self.reporter = reporter
        self.slot = slot


class _RunningCall:
    """A call of a batch task that has started."""

    __slots__ = ("call", "keys", "slot", "task")
    task: asyncio.Task[None]

    def __init__(self, call: BatchCall, keys: set[tuple[int, int]], slot: int) -> None:
        self.call = call
        self.keys = keys  # of its jobs that have not ended
        self.slot = slot


class AsyncChild:
    """Runs many jobs at once on one event loop."""

    def __init__(
        self, sock: socket.socket, slot_table: SlotTable, runner: Runner, slots: int, log_level: int | None = None
    ) -> None:
        self._sock = sock
        self._slot_table = slot_table
        self._runner = runner
        self._slots = slots
        self._log_level = log_level
        self._waiting = WorkQueue()
        self._running: dict[tuple[int, int], _RunningJob] = {}  # by seq and fence
        self._calls: dict[tuple[int, int], _RunningCall] = {}  # of each job that is in a call
        self._calls_running = 0
        self._started = 0  # jobs started in this iteration of the loop
        self._ended: list[Ended] = []
        self._leaving = asyncio.Event()
        self._busy = threading.Event()
        self._has_loop_stopped = False
        self._next_flush: asyncio.Handle | None = None
        self._next_start: asyncio.Handle | None = None
        self._flushed_at = 0.0
        self._is_writing = False

    async def serve(self) -> bool:
        """Run jobs until the supervisor tells this child to exit (True) or is gone (False)."""
        self._loop = asyncio.get_running_loop()
        self._clean_context = contextvars.copy_context()
        self._runner.remember_directory()
        self._orphaned = False
        self._transport, _ = await self._loop.create_connection(
            lambda: WireReader(to_child, self.on_message, self.on_disconnect), sock=self._sock
        )
        self._reporting = Reporting(self._write, Outputs(self))
        forward_logs(self._write, self._log_level)
        threading.Thread(target=self._watch_loop, name="daybreak-child-watch", daemon=True).start()
        await self._leaving.wait()
        self._busy.set()
        self._flush()
        if not self._orphaned:
            self._transport.close()
        return not self._orphaned

    def on_message(self, message: Any) -> None:
        match message:
            case Run(batch):
                self._add(batch)
            case RunCall():
                self._add([message])
            case Stop(seq, fence, reason):
                job = self._running.get((seq, fence))
                running = self._calls.get((seq, fence))
                if job is not None:
                    job.ctx.ask_to_stop(reason)
                    job.task.cancel()
                elif running is not None and running.call.stop(seq, fence, reason):
                    running.task.cancel()
            case GetStack(seq, fence):
                found = self._running.get((seq, fence)) or self._calls.get((seq, fence))
                if found is not None:
                    self._write(frame(Stack(seq, fence, stack_of_task(found.task))))
            case CheckpointSaved(seq, token, held):
                self._reporting.on_checkpoint_saved(seq, token, held=held)
            case FileMoved():
                self._reporting.on_file_moved(message)
            case Recall():
                self._write(frame(Returned(self._waiting.clear())))
            case Exit():
                self._leaving.set()

    def on_loop_stopped(self) -> None:
        """The loop has stopped while jobs were running, for example because a task called sys.exit().

        asyncio cancels the jobs next. Do not report that: they are lost with this child, and the supervisor finds the
        job that stopped the loop by running each of them alone."""
        self._has_loop_stopped = True
        if self._ended:
            self._flush()

    def on_disconnect(self) -> None:
        self._reporting.fail_pending_replies()
        if not self._leaving.is_set():
            self._orphaned = True
            self._leaving.set()

    # -- starting jobs -------------------------------------------------------------------------------------------------

    def _add(self, batch: Sequence[Item]) -> None:
        self._waiting.add(batch)
        if self._is_idle:
            self._start_batch()
        else:
            self._schedule_start()

    @property
    def _is_idle(self) -> bool:
        return not self._running and not self._calls_running

    def _start_batch(self) -> None:
        self._next_start = None
        self._started = 0
        self._start_waiting()

    def _schedule_start(self) -> None:
        if self._next_start is None:
            self._next_start = self._loop.call_soon(self._start_batch, context=self._clean_context)

    def _start_waiting(self) -> None:
        """Start waiting jobs while there is room, a few per iteration of the loop: an urgent job that arrives meanwhile
        is read between two iterations and starts before the rest."""
        while self._has_room:
            work = self._waiting.pop()
            if work is None:
                break
            if isinstance(work, RunCall) or self._runner.is_batch(work):
                self._started += 1
                self._start_call(works_of(work))
                continue
            reporter = self._reporting.for_job(work)
            try:
                ctx = self._runner.context_of(work, reporter)
            except Exception as error:  # noqa: BLE001 - a checkpoint that cannot be decoded fails this job only
                self._report(ended_by_error(work, None, error, time.monotonic()))
                continue
            self._started += 1
            # Register the job before its task exists: with an eager task factory the task runs, and may end, inside
            # create_task.
            job = self._running[work.seq, work.fence] = _RunningJob(ctx, reporter, self._slot_table.begin(work.seq))
            if len(self._running) == 1:
                self._busy.set()
            # Each job gets its own copy of a clean context: this code may run as the last step of another job.
            job.task = self._loop.create_task(self._run(work, ctx), context=self._clean_context.copy())
            job.task.add_done_callback(functools.partial(self._on_task_done, work, job), context=self._clean_context)
        if self._started:
            self._schedule_start()

    def _start_call(self, works: list[Work]) -> None:
        keys = {(work.seq, work.fence) for work in works}
        slot = self._slot_table.begin(works[0].seq, jobs=len(works))

        def report(ended: list[Ended], reporter: TaskReporter | None) -> None:
            if isinstance(reporter, JobReporter):
                self._reporting.send_output(reporter)
            for end in ended:
                end.at = time.time() if works[0].trace is not None else 0.0
                self._reporting.forget(end.seq)
                self._calls.pop((end.seq, end.fence), None)
                running.keys.discard((end.seq, end.fence))
            if not self._has_loop_stopped and ended:
                self._ended += ended
                self._flush()  # at once, as in a sync child

        call = BatchCall(
            self._runner,
            works,
            self._reporting.for_job,
            on_part=lambda part: self._slot_table.begin_part(slot, part),
            report=report,
        )
        running = _RunningCall(call, keys, slot)
        self._calls.update(dict.fromkeys(keys, running))
        self._calls_running += 1
        if self._calls_running == 1:
            self._busy.set()
        running.task = self._loop.create_task(self._run_call(running), context=self._clean_context.copy())
        running.task.add_done_callback(
            functools.partial(self._on_call_done, works, running), context=self._clean_context
        )

    async def _run_call(self, running: _RunningCall) -> None:
        await running.call.run_async()
        if not self._has_loop_stopped:
            self._end_call(running)

    def _on_call_done(self, works: list[Work], running: _RunningCall, task: asyncio.Task[None]) -> None:
        """End what is left of a call whose task was cancelled outside of its function."""
        if self._has_loop_stopped or not running.keys:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        now = time.monotonic()
        for work in works:
            key = (work.seq, work.fence)
            if key in running.keys:
                self._calls.pop(key, None)
                self._report(running.call.ended_by(work, error or RuntimeError("the call ended without a report"), now))
        running.keys.clear()
        self._end_call(running)

    def _end_call(self, running: _RunningCall) -> None:
        self._slot_table.end(running.slot)
        self._calls_running -= 1
        if self._is_idle:
            self._runner.restore_directory()
        self._start_waiting()

    @property
    def _has_room(self) -> bool:
        return (
            len(self._running) + self._calls_running < self._slots
            and self._started < MAX_STARTS_PER_ITERATION
            and not self._leaving.is_set()
        )  # fmt: skip

    async def _run(self, work: Work, ctx: Context) -> None:
        ended = await self._runner.run_async(work, ctx)
        if self._has_loop_stopped:
            return
        # Free the slot here, not in a later iteration of the loop, so that the next job starts without delay.
        self._end(work, ended)

    # -- ending jobs ---------------------------------------------------------------------------------------------------

    def _on_task_done(self, work: Work, job: _RunningJob, task: asyncio.Task[None]) -> None:
        """Report a job whose task was cancelled before its first step; `_run` has reported every other one."""
        if self._running.get((work.seq, work.fence)) is job and not self._has_loop_stopped:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is None:
                error = RuntimeError("the task ended without a report")
            self._end(work, ended_by_error(work, job.ctx, error, time.monotonic()))

    def _end(self, work: Work, ended: Ended) -> None:
        if work.trace is not None:
            ended.at = time.time()
        job = self._running.pop((work.seq, work.fence))
        self._slot_table.end(job.slot)
        self._reporting.send_output(job.reporter)
        self._reporting.forget(work.seq)
        # All jobs of the loop share the working directory: restore it only when no other job can be using it.
        if self._is_idle:
            self._runner.restore_directory()
        self._report(ended)
        self._start_waiting()

    def _report(self, ended: Ended) -> None:
        """Send this outcome with others: in 2.5 ms if a batch was just sent and more work is waiting, else at the end
        of this iteration of the loop."""
        self._ended.append(ended)
        if self._next_flush is None:
            if self._loop.time() - self._flushed_at < FLUSH_INTERVAL and len(self._waiting) > 0:
                self._next_flush = self._loop.call_later(FLUSH_INTERVAL, self._flush, context=self._clean_context)
            else:
                self._next_flush = self._loop.call_soon(self._flush, context=self._clean_context)

    def _flush(self) -> None:
        self._next_flush = None
        self._flushed_at = self._loop.time()
        if self._ended:
            ended, self._ended = self._ended, []
            self._write(encode_report(ended))

    def _write(self, data: bytes) -> None:
        # Threads that a task started may report progress and save checkpoints.
        if self._is_in_loop:
            self._is_writing = True
            self._transport.write(data)
            self._is_writing = False
        else:
            self._loop.call_soon_threadsafe(self._transport.write, data)

    @property
    def _is_in_loop(self) -> bool:
        return threading.get_ident() == _thread_of(self._loop)

    # -- output of jobs ------------------------------------------------------------------------------------------------

    def send_output(self, data: bytes) -> None:
        self._write(data)

    @property
    def can_send(self) -> bool:
        # Only in the loop: there the output of a job is written before the report of its end.
        return self._is_in_loop and not self._is_writing

    def flush_soon(self, flush: Callable[[], None]) -> None:
        if self._is_in_loop:
            self._loop.call_later(OUTPUT_INTERVAL, flush, context=self._clean_context)
        else:
            self._loop.call_soon_threadsafe(self.flush_soon, flush, context=self._clean_context)

    # -- in the watching thread ----------------------------------------------------------------------------------------

    def _watch_loop(self) -> None:
        """Check that the event loop keeps iterating; if it does not, record which job blocks it."""
        idle_checks = 0
        while not self._leaving.is_set():
            self._busy.wait()
            if not self._is_idle:
                idle_checks = 0
                self._check_loop()
                continue
            idle_checks += 1
            time.sleep(BLOCKED_AFTER)
            if idle_checks > IDLE_CHECKS and self._is_idle:
                self._busy.clear()
                if not self._is_idle:  # a job started between the check and the clear
                    self._busy.set()

    def _check_loop(self) -> None:
        iterated = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(iterated.set)
        time.sleep(BLOCKED_AFTER)
        while not iterated.is_set() and not self._leaving.is_set():
            self._slot_table.set_blocker(self._blocking_job())
            iterated.wait(BLOCKED_AFTER)
        self._slot_table.set_blocker(0)

    def _blocking_job(self) -> int:
        """The job whose task is executing a step right now; 0 if there is none."""
        current = asyncio.current_task(self._loop)
        if current is None:
            return 0
        for (seq, _), job in [*self._running.items(), *self._calls.items()]:
            if getattr(job, "task", None) is current:
                return seq
        return 0


def _thread_of(loop: asyncio.AbstractEventLoop) -> int | None:
    return getattr(loop, "_thread_id", None)

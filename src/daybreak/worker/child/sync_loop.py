"""The main loop of a child for sync tasks: receive work, run one job at a time, report outcomes.

Jobs run in the main thread; a second thread reads messages from the supervisor. Outcomes are sent in batches: before
the child waits for work, before a job that may take long, and at the latest 5 ms after the previous batch.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from daybreak.tasks.context import Context, TaskReporter
from daybreak.worker.child.calls import BatchCall
from daybreak.worker.child.job_output import FlushThread, Outputs
from daybreak.worker.child.output_streams import find_by_context
from daybreak.worker.child.reporting import JobReporter, Reporting, encode_report, forward_logs
from daybreak.worker.child.runner import Runner, ended_by_error
from daybreak.worker.child.stacks import stack_of_thread
from daybreak.worker.child.work_queue import Item, WorkQueue, remove_all
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import (
    CheckpointSaved,
    Ended,
    Exit,
    FileMoved,
    Frames,
    GetStack,
    ListenerThread,
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

_log = logging.getLogger("daybreak.worker")

FLUSH_INTERVAL: Final = 0.005  # seconds between two batches of outcomes while jobs follow one another
SHORT_JOB: Final = 0.005  # seconds; outcomes may wait for a job that is known to be shorter
RECEIVE_BYTES: Final = 1 << 16


class SyncChild:
    """Runs one job at a time, in the thread that calls `serve`."""

    def __init__(
        self,
        sock: socket.socket,
        slot_table: SlotTable,
        runner: Runner,
        on_orphaned: Callable[[], None],
        log_level: int | None = None,
    ) -> None:
        self._sock = sock
        self._slot_table = slot_table
        self._runner = runner
        self._on_orphaned = on_orphaned
        self._waiting = WorkQueue()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # the listener puts one item per message of interest
        self._leaving = False
        self._send_lock = threading.Lock()
        self._ended: deque[Ended] = deque()  # both threads may flush it; each item is removed by one of them only
        self._flushed_at = 0.0
        self._durations: dict[str, float] = {}
        self._current: tuple[int, Context] | None = None
        self._call: BatchCall | None = None
        self._reporting = Reporting(self._send, Outputs(self))
        self._flush_thread: FlushThread | None = None
        self._log_level = log_level

    def serve(self) -> None:
        """Run jobs until the supervisor tells this child to exit, or is gone."""
        self._thread = threading.get_ident()
        self._runner.remember_directory()
        if self._log_level is None:
            forward_logs(self._send, None)
        else:
            forward_logs(self._send, self._log_level, self._job_that_prints)
        listener = threading.Thread(target=self._listen, name="daybreak-child-listener", daemon=True)
        listener.start()
        with contextlib.suppress(OSError):  # the supervisor is gone, or has given up this child
            while True:
                work = self._next()
                if work is None:
                    break
                if isinstance(work, RunCall):
                    self._run_call(work.call)
                elif self._runner.is_batch(work):
                    self._run_call([work])
                else:
                    self._run(work)
            self._flush()

    def _next(self) -> Item | None:
        while True:
            work = self._waiting.pop()
            if work is not None:
                return work
            if self._leaving:
                return None
            self._flush()
            self._wake.get()

    def _run(self, work: Work) -> None:
        # Outcomes must not wait for a job that may take long: only a job that is known to be short runs first.
        if self._ended and self._durations.get(work.task, SHORT_JOB) >= SHORT_JOB:
            self._flush()
        slot = self._slot_table.begin(work.seq)
        reporter = self._reporting.for_job(work)
        try:
            ctx = self._runner.context_of(work, reporter)
        except Exception as error:  # noqa: BLE001 - a checkpoint that cannot be decoded fails this job only
            ended = ended_by_error(work, None, error, time.monotonic())
        else:
            self._current = (work.seq, ctx)
            ended = self._runner.run(work, ctx)
            self._current = None
        self._slot_table.end(slot)
        self._reporting.forget(work.seq)
        self._reporting.send_output(reporter)
        if work.trace is not None:
            ended.at = time.time()
        self._ended.append(ended)
        before = self._durations.get(work.task, ended.ran_for)
        self._durations[work.task] = max(ended.ran_for, before + 0.1 * (ended.ran_for - before))
        if time.monotonic() - self._flushed_at > FLUSH_INTERVAL:
            self._flush()

    def _run_call(self, works: list[Work]) -> None:
        if self._ended:
            self._flush()
        slot = self._slot_table.begin(works[0].seq, jobs=len(works))

        def report(ended: list[Ended], reporter: TaskReporter | None) -> None:
            for end in ended:
                self._reporting.forget(end.seq)
                end.at = time.time() if works[0].trace is not None else 0.0
            if isinstance(reporter, JobReporter):
                self._reporting.send_output(reporter)
            # At once: what is known of a job must not be lost with the jobs that are called next.
            self._send(encode_report(ended))

        call = BatchCall(
            self._runner,
            works,
            self._reporting.for_job,
            on_part=lambda part: self._slot_table.begin_part(slot, part),
            report=report,
        )
        self._call = call
        try:
            call.run()
        finally:
            self._call = None
            self._slot_table.end(slot)

    def _flush(self) -> None:
        if self._ended:
            ended = remove_all(self._ended)
            if ended:
                self._send(encode_report(ended))
        self._flushed_at = time.monotonic()

    def _send(self, data: bytes) -> None:
        with self._send_lock:
            self._sock.sendall(data)

    # -- output of jobs ------------------------------------------------------------------------------------------------

    def _job_that_prints(self) -> Context | None:
        """In this process one job runs at a time, so what a thread prints that it has started is its output too."""
        ctx = find_by_context()
        if ctx is not None:
            return ctx
        call = self._call
        if call is not None:
            return call.ctx
        return None if self._current is None else self._current[1]

    def send_output(self, data: bytes) -> None:
        self._send(data)

    @property
    def can_send(self) -> bool:
        return not self._send_lock.locked()

    def flush_soon(self, flush: Callable[[], None]) -> None:
        if self._flush_thread is None:
            self._flush_thread = FlushThread()
        self._flush_thread.ask(flush)

    # -- in the listener thread ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        frames = Frames(to_child)
        with contextlib.suppress(OSError):
            self._send(frame(ListenerThread(threading.get_native_id())))
            while data := self._sock.recv(RECEIVE_BYTES):
                for message in frames.feed(data):
                    try:
                        self._on_message(message)
                    except OSError:
                        raise
                    except Exception:  # noqa: BLE001 - one bad message must not end the listener
                        _log.exception("a child process could not handle a message from its supervisor")
        self._reporting.fail_pending_replies()
        if not self._leaving:
            self._leaving = True
            self._on_orphaned()
        self._wake.put(None)

    def _on_message(self, message: Any) -> None:
        match message:
            case Run(batch):
                self._waiting.add(batch)
                self._wake.put(None)
            case RunCall():
                self._waiting.add([message])
                self._wake.put(None)
            case Stop(seq, fence, reason):
                call = self._call
                if call is not None:
                    call.stop(seq, fence, reason)
                current = self._current
                if current is not None and current[0] == seq and current[1].fence == fence:
                    current[1].ask_to_stop(reason)
            case GetStack(seq, fence):
                self._send(frame(Stack(seq, fence, stack_of_thread(self._thread))))
            case CheckpointSaved(seq, token, held):
                self._reporting.on_checkpoint_saved(seq, token, held=held)
            case FileMoved():
                self._reporting.on_file_moved(message)
            case Recall():
                # The supervisor recalls work when a child has been silent for a while: outcomes may be waiting for the
                # current job to end, so send them now.
                self._flush()
                self._send(frame(Returned(self._waiting.clear())))
            case Exit():
                self._leaving = True
                self._wake.put(None)

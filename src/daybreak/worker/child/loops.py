"""The program in a child: takes work from the socket, runs it, and says how it ended.

A child for sync tasks runs one job at a time in its main thread, while a second thread listens. A child for async tasks
runs many on one loop. Reports go out in batches, at most a millisecond after the work ended or before the child rests.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from daybreak.core.model import Failure
from daybreak.tasks.context import Context
from daybreak.worker.child.reporting import Reporting, forward_logs
from daybreak.worker.child.runner import Runner, told
from daybreak.worker.child.stacks import stack_of_task, stack_of_thread
from daybreak.worker.slot_table import SlotTable
from daybreak.worker.wire import (
    Bye,
    Ended,
    Frames,
    Kept,
    Listens,
    Recall,
    Report,
    Returned,
    Run,
    Stack,
    Stop,
    Where,
    Work,
    frame,
    to_child,
)
from daybreak.worker.wire_reader import WireReader

T = TypeVar("T")

_log = logging.getLogger("daybreak.worker")

FLUSH_AFTER: Final = 0.005
SHORT: Final = 0.005
STUCK_AFTER: Final = 0.25
ALERT_FOR: Final = 40  # looks at nothing, then whoever looks has to be woken: no job's start should have to do that
AT_ONCE: Final = 8
RECEIVE: Final = 1 << 16


class SyncChild:
    """One job at a time, in the thread that calls `serve`."""

    def __init__(
        self,
        sock: socket.socket,
        cell: SlotTable,
        runner: Runner,
        on_orphaned: Callable[[], None],
        log_level: int | None = None,
    ) -> None:
        self._sock = sock
        self._cell = cell
        self._runner = runner
        self._on_orphaned = on_orphaned
        self._waiting = _Line()
        self._more: queue.SimpleQueue[None] = queue.SimpleQueue()  # something was heard
        self._leaving = False
        self._sending = threading.Lock()
        self._ended: deque[Ended] = deque()  # each is taken by one thread alone, whichever tells
        self._flushed_at = 0.0
        self._lasts: dict[str, float] = {}
        self._at: tuple[int, Context] | None = None
        self._voices = Reporting(self._send)
        self._log_level = log_level

    def serve(self) -> None:
        self._thread = threading.get_ident()
        self._runner.begin_here()
        forward_logs(self._send, self._log_level)
        listener = threading.Thread(target=self._listen, name="daybreak-child-listener", daemon=True)
        listener.start()
        with contextlib.suppress(OSError):  # the supervisor is gone, or gave this child up
            while (work := self._next()) is not None:
                self._run(work)
            self._flush()

    def _next(self) -> Work | None:
        while (work := self._waiting.pop()) is None:
            if self._leaving:
                return None
            self._flush()
            self._more.get()
        return work

    def _run(self, work: Work) -> None:
        # What has ended must not wait for a job that may take long: only known short ones go before its report.
        if self._ended and self._lasts.get(work.task, SHORT) >= SHORT:
            self._flush()
        place = self._cell.begin(work.seq)
        try:
            ctx = self._runner.context_of(work, self._voices.of(work))
        except Exception as error:  # noqa: BLE001 - a checkpoint that nobody can read is the job's trouble alone
            ended = told(work, None, error, time.monotonic())
        else:
            self._at = (work.seq, ctx)
            ended = self._runner.run(work, ctx)
            self._at = None
        self._cell.end(place)
        self._voices.forget(work.seq)
        self._ended.append(ended)
        before = self._lasts.get(work.task, ended.ran_for)
        self._lasts[work.task] = max(ended.ran_for, before + 0.1 * (ended.ran_for - before))
        if time.monotonic() - self._flushed_at > FLUSH_AFTER:
            self._flush()

    def _flush(self) -> None:
        if self._ended and (ended := taken_out(self._ended)):
            self._send(_framed(ended))
        self._flushed_at = time.monotonic()

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._sock.sendall(data)

    # -- in the listening thread ---------------------------------------------------------------------------------------

    def _listen(self) -> None:
        frames = Frames(to_child)
        with contextlib.suppress(OSError):
            self._send(frame(Listens(threading.get_native_id())))
            while data := self._sock.recv(RECEIVE):
                for message in frames.feed(data):
                    try:
                        self._hear(message)
                    except OSError:
                        raise
                    except Exception:  # noqa: BLE001 - one message must not make a child deaf
                        _log.exception("a child could not follow its supervisor")
        self._voices.give_up()
        if not self._leaving:
            self._leaving = True
            self._on_orphaned()
        self._more.put(None)

    def _hear(self, message: Any) -> None:
        match message:
            case Run(works):
                self._waiting.add(works)
                self._more.put(None)
            case Stop(seq, why):
                if (at := self._at) is not None and at[0] == seq:
                    at[1].ask_to_stop(why)
            case Where(seq):
                self._send(frame(Stack(seq, stack_of_thread(self._thread))))
            case Kept(seq, token, held):
                self._voices.kept(seq, token, held=held)
            case Recall():
                self._flush()  # asked of one that was silent for long: what has ended was waiting for the next to end
                self._send(frame(Returned(self._waiting.empty())))
            case Bye():
                self._leaving = True
                self._more.put(None)


class _Running:
    """A job that has begun."""

    __slots__ = ("ctx", "place", "task")
    task: asyncio.Task[None]

    def __init__(self, ctx: Context, place: int) -> None:
        self.ctx = ctx
        self.place = place


class AsyncChild:
    """Many jobs at once on one loop."""

    def __init__(
        self, sock: socket.socket, cell: SlotTable, runner: Runner, slots: int, log_level: int | None = None
    ) -> None:
        self._sock = sock
        self._cell = cell
        self._runner = runner
        self._slots = slots
        self._log_level = log_level
        self._waiting = _Line()
        self._running: dict[int, _Running] = {}
        self._begun = 0  # in this round of the loop
        self._ended: list[Ended] = []
        self._leaving = asyncio.Event()
        self._busy = threading.Event()
        self._is_torn = False
        self._flushing: asyncio.Handle | None = None
        self._filling: asyncio.Handle | None = None
        self._flushed_at = 0.0

    async def serve(self) -> bool:
        """Until told to leave (True) or left alone (False)."""
        self._loop = asyncio.get_running_loop()
        self._clean = contextvars.copy_context()
        self._runner.begin_here()
        self._orphaned = False
        self._transport, _ = await self._loop.create_connection(
            lambda: WireReader(to_child, self.hear, self.orphaned), sock=self._sock
        )
        self._voices = Reporting(self._write)
        forward_logs(self._write, self._log_level)
        threading.Thread(target=self._watch, name="daybreak-child-watch", daemon=True).start()
        await self._leaving.wait()
        self._busy.set()
        self._flush()
        if not self._orphaned:
            self._transport.close()
        return not self._orphaned

    def hear(self, message: Any) -> None:
        match message:
            case Run(works):
                self._waiting.add(works)
                if self._running:
                    self._fill_soon()
                else:
                    self._fill()
            case Stop(seq, why):
                if (found := self._running.get(seq)) is not None:
                    found.ctx.ask_to_stop(why)
                    found.task.cancel()
            case Where(seq):
                if (found := self._running.get(seq)) is not None:
                    self._write(frame(Stack(seq, stack_of_task(found.task))))
            case Kept(seq, token, held):
                self._voices.kept(seq, token, held=held)
            case Recall():
                self._write(frame(Returned(self._waiting.empty())))
            case Bye():
                self._leaving.set()

    def torn(self) -> None:
        """The loop has ended under its jobs, as by a sys.exit() in one of their tasks. They are cancelled now, and what
        they say of it is not how they ended: they die with this child, and whoever did it is found by running alone."""
        self._is_torn = True
        if self._ended:
            self._flush()

    def orphaned(self) -> None:
        self._voices.give_up()
        if not self._leaving.is_set():
            self._orphaned = True
            self._leaving.set()

    def _fill(self) -> None:
        self._filling = None
        self._begun = 0
        self._begin()

    def _fill_soon(self) -> None:
        if self._filling is None:
            self._filling = self._loop.call_soon(self._fill, context=self._clean)

    def _begin(self) -> None:
        """Begin what there is room for, a few in each round of the loop: an urgent one that comes meanwhile is heard
        between two rounds and goes first."""
        while self._has_room and (work := self._waiting.pop()) is not None:
            try:
                ctx = self._runner.context_of(work, self._voices.of(work))
            except Exception as error:  # noqa: BLE001 - a checkpoint that nobody can read is the job's trouble alone
                self._tell(told(work, None, error, time.monotonic()))
                continue
            self._begun += 1
            # Known before it is a task: a program may have tasks that begin, and end, as they are made.
            running = self._running[work.seq] = _Running(ctx, self._cell.begin(work.seq))
            if len(self._running) == 1:
                self._busy.set()
            # In a context of its own: this may be the last step of another job.
            running.task = self._loop.create_task(self._run(work, ctx), context=self._clean.copy())
            running.task.add_done_callback(functools.partial(self._ended_early, work, running), context=self._clean)
        if self._begun:
            self._fill_soon()

    @property
    def _has_room(self) -> bool:
        return len(self._running) < self._slots and self._begun < AT_ONCE and not self._leaving.is_set()

    async def _run(self, work: Work, ctx: Context) -> None:
        ended = await self._runner.arun(work, ctx)
        if self._is_torn:
            return
        # At once, not once the loop has come round: the next has waited long enough.
        self._end(work, ended)

    def _ended_early(self, work: Work, running: _Running, task: asyncio.Task[None]) -> None:
        if self._running.get(work.seq) is running and not self._is_torn:  # cancelled before its first step
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._end(work, told(work, running.ctx, error or RuntimeError("it ended untold"), time.monotonic()))

    def _end(self, work: Work, ended: Ended) -> None:
        self._cell.end(self._running.pop(work.seq).place)
        self._voices.forget(work.seq)
        # The working directory belongs to all jobs of the loop: another one may be using it.
        if not self._running:
            self._runner.go_home()
        self._tell(ended)
        self._begin()

    def _tell(self, ended: Ended) -> None:
        """Reports wait for others, while more is at hand, for a millisecond; else they go at the end of the round."""
        self._ended.append(ended)
        if self._flushing is None:
            later = self._loop.time() - self._flushed_at < FLUSH_AFTER / 2 and len(self._waiting) > 0
            self._flushing = (
                self._loop.call_later(FLUSH_AFTER / 2, self._flush, context=self._clean)
                if later
                else self._loop.call_soon(self._flush, context=self._clean)
            )

    def _watch(self) -> None:
        """In a thread: whether the loop goes round; if not, the job that is in the midst of a step holds it up."""
        quiet = 0
        while not self._leaving.is_set():
            self._busy.wait()
            if self._running:
                quiet = 0
                self._look()
                continue
            quiet += 1
            time.sleep(STUCK_AFTER)
            if quiet > ALERT_FOR and not self._running:
                self._busy.clear()
                if self._running:
                    self._busy.set()

    def _look(self) -> None:
        round_made = threading.Event()
        with contextlib.suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(round_made.set)
        time.sleep(STUCK_AFTER)
        while not round_made.is_set() and not self._leaving.is_set():
            self._cell.blocked_by(self._who())
            round_made.wait(STUCK_AFTER)
        self._cell.blocked_by(0)

    def _who(self) -> int:
        if (at := asyncio.current_task(self._loop)) is None:
            return 0
        return next((seq for seq, running in list(self._running.items()) if getattr(running, "task", None) is at), 0)

    def _flush(self) -> None:
        self._flushing = None
        self._flushed_at = self._loop.time()
        if self._ended:
            ended, self._ended = self._ended, []
            self._write(_framed(ended))

    def _write(self, data: bytes) -> None:
        # Progress and checkpoints may come from threads that a task started.
        if threading.get_ident() == _ident(self._loop):
            self._transport.write(data)
        else:
            self._loop.call_soon_threadsafe(self._transport.write, data)


def _ident(loop: asyncio.AbstractEventLoop) -> int | None:
    return getattr(loop, "_thread_id", None)


def _framed(ended: list[Ended]) -> bytes:
    """Reports as a frame; one that cannot be told takes no other with it."""
    try:
        return frame(Report(ended))
    except Exception as error:  # noqa: BLE001
        if len(ended) > 1:
            return b"".join(_framed([one]) for one in ended)
        failure = Failure(message=f"how it ended cannot be told: {type(error).__name__}", verdict="permanent")
        return frame(Report([Ended(ended[0].seq, "failed", ended[0].ran_for, failure=failure)]))


class _Line:
    """Works that have not begun, the most urgent first, else as they came. One thread adds while another takes: who
    takes a work out has it alone."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()

    def add(self, works: list[Work]) -> None:
        waiting = self._works
        try:
            in_order = waiting[-1].priority <= min(work.priority for work in works)
        except IndexError:  # the last was just taken
            in_order = True
        if not in_order:
            works = sorted(taken_out(waiting) + works, key=lambda work: work.priority)
        waiting.extend(works)

    def __len__(self) -> int:
        return len(self._works)

    def pop(self) -> Work | None:
        try:
            return self._works.popleft()
        except IndexError:
            return None

    def empty(self) -> list[int]:
        return [work.seq for work in taken_out(self._works)]


def taken_out(several: deque[T]) -> list[T]:
    taken: list[T] = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(several.popleft())
    return taken

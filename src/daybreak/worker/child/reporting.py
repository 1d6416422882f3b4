"""What a child tells its supervisor about jobs: outcomes, progress, checkpoints and log lines."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from daybreak.core.errors import DaybreakError, LeaseLost, Permanent, StoreUnavailable
from daybreak.core.model import Failure
from daybreak.core.units import clean
from daybreak.tasks.context import Context
from daybreak.worker.child.job_output import JobOutput, Outputs
from daybreak.worker.child.output_streams import KeptLines, connect, find_by_context
from daybreak.worker.wire import Ended, FileMoved, LogLine, MoveFile, Progress, Report, SaveCheckpoint, Work, frame

PROGRESS_INTERVAL: Final = 0.1  # seconds between two progress messages of one job
MAX_LINE_CHARS: Final = 16_000


class Reporting:
    """Sends the progress and the checkpoints of all jobs of one child."""

    def __init__(self, send: Callable[[bytes], None], outputs: Outputs) -> None:
        self._send = send
        self._outputs = outputs
        self._tokens = itertools.count(1)
        self._pending_checkpoints: dict[tuple[int, int], Callable[[bool], None]] = {}
        self._pending_files: dict[tuple[int, int], Callable[[FileMoved], None]] = {}
        self._delayed_progress: dict[int, Progress] = {}
        self._sent_at: dict[int, float] = {}
        self._wake: threading.Event | None = None

    def for_job(self, work: Work) -> JobReporter:
        return JobReporter(self, work, self._outputs)

    def send_output(self, reporter: JobReporter) -> None:
        """Send what is left of the output of a job that has ended, so that it goes before the outcome."""
        if reporter.has_output:
            self._outputs.flush()

    def forget(self, seq: int) -> None:
        """Drop what is known about a job that has ended."""
        if self._sent_at:  # a job with delayed progress has sent progress before
            self._delayed_progress.pop(seq, None)
            self._sent_at.pop(seq, None)

    def progress(self, update: Progress) -> None:
        """Send progress, at most once per `PROGRESS_INTERVAL` and job: of several updates the latest is sent."""
        now = time.monotonic()
        if now - self._sent_at.get(update.seq, -1.0) >= PROGRESS_INTERVAL:
            self._sent_at[update.seq] = now
            self._delayed_progress.pop(update.seq, None)
            self._send(frame(update))
            return
        self._delayed_progress[update.seq] = update
        if self._wake is None:
            self._wake = threading.Event()
            threading.Thread(target=self._send_delayed, name="daybreak-child-progress", daemon=True).start()
        self._wake.set()

    def _send_delayed(self) -> None:
        """Runs in a thread: without it the last of several quick updates would wait until the next one."""
        assert self._wake is not None
        with contextlib.suppress(OSError, RuntimeError):
            while self._wake.wait():
                self._wake.clear()
                time.sleep(PROGRESS_INTERVAL)
                while self._delayed_progress:
                    with contextlib.suppress(KeyError):
                        _, update = self._delayed_progress.popitem()
                        self._send(frame(update))

    def save_checkpoint(self, work: Work, checkpoint: bytes, on_saved: Callable[[bool], None]) -> None:
        """Ask the supervisor to save a checkpoint. `on_saved` gets False if the lease was lost."""
        token = next(self._tokens)
        self._pending_checkpoints[work.seq, token] = on_saved
        self._send(frame(SaveCheckpoint(work.seq, work.fence, token, checkpoint)))

    def on_checkpoint_saved(self, seq: int, token: int, *, held: bool) -> None:
        on_saved = self._pending_checkpoints.pop((seq, token), None)
        if on_saved is not None:
            on_saved(held)

    def move_file(self, work: Work, digest: str, up: bool, on_moved: Callable[[FileMoved], None]) -> None:
        """Ask the supervisor to copy a content."""
        token = next(self._tokens)
        self._pending_files[work.seq, token] = on_moved
        self._send(frame(MoveFile(work.seq, work.fence, token, digest, up)))

    def on_file_moved(self, moved: FileMoved) -> None:
        on_moved = self._pending_files.pop((moved.seq, moved.token), None)
        if on_moved is not None:
            on_moved(moved)

    def fail_pending_replies(self) -> None:
        """The supervisor is gone and will not reply: end every wait for a checkpoint with LeaseLost, and every wait for
        a file with an error."""
        while self._pending_files:
            with contextlib.suppress(KeyError):
                (seq, token), on_moved = self._pending_files.popitem()
                on_moved(FileMoved(seq, token, "the worker is gone"))
        while self._pending_checkpoints:
            with contextlib.suppress(KeyError):
                self._pending_checkpoints.popitem()[1](False)


class JobReporter:
    """What the context of one job uses to report progress, keep output and save checkpoints."""

    def __init__(self, reporting: Reporting, work: Work, outputs: Outputs) -> None:
        self._reporting = reporting
        self._work = work
        self._outputs = outputs
        self._output: JobOutput | None = None

    @property
    def has_output(self) -> bool:
        return self._output is not None

    def output(self, text: str) -> None:
        if self._output is None:
            self._output = JobOutput(self._outputs, self._work)
        self._output.add(text)

    def progress(self, fraction: float, message: str) -> None:
        self._reporting.progress(Progress(self._work.seq, self._work.fence, fraction, clean(message)))

    def keep(self, checkpoint: bytes) -> None:
        if _is_on_event_loop():
            raise DaybreakError(
                "ctx.checkpoint() and ctx.step() block the event loop that must receive the reply: "
                "write 'await ctx.acheckpoint(...)' or 'await ctx.astep(...)'"
            )
        replied = threading.Event()
        replies: list[bool] = []

        def on_saved(held: bool) -> None:
            replies.append(held)
            replied.set()

        self._reporting.save_checkpoint(self._work, checkpoint, on_saved)
        replied.wait()
        if not replies[0]:
            raise LeaseLost(self._work.job, self._work.fence)

    async def akeep(self, checkpoint: bytes) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()

        def on_saved(held: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop of the caller has closed
                loop.call_soon_threadsafe(_resolve, future, held)

        self._reporting.save_checkpoint(self._work, checkpoint, on_saved)
        if not await future:
            raise LeaseLost(self._work.job, self._work.fence)

    def move_file(self, digest: str, *, up: bool) -> None:
        replied = threading.Event()
        replies: list[FileMoved] = []

        def on_moved(moved: FileMoved) -> None:
            replies.append(moved)
            replied.set()

        self._reporting.move_file(self._work, digest, up, on_moved)
        replied.wait()
        _raise_if_failed(replies[0])

    async def amove_file(self, digest: str, *, up: bool) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[FileMoved] = loop.create_future()

        def on_moved(moved: FileMoved) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future, moved)

        self._reporting.move_file(self._work, digest, up, on_moved)
        _raise_if_failed(await future)


def _raise_if_failed(moved: FileMoved) -> None:
    if moved.error:
        raise (Permanent if moved.is_permanent else StoreUnavailable)(moved.error)


T = TypeVar("T")


def _resolve(future: asyncio.Future[T], answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def encode_report(ended: list[Ended]) -> bytes:
    """Outcomes as one frame. An outcome that cannot be encoded becomes a failure; the others are sent unchanged."""
    try:
        return frame(Report(ended))
    except Exception as error:  # noqa: BLE001
        if len(ended) > 1:
            return b"".join(encode_report([one]) for one in ended)
        failure = Failure(message=f"its outcome cannot be encoded: {type(error).__name__}", verdict="permanent")
        return frame(Report([Ended(ended[0].seq, ended[0].fence, "failed", ended[0].ran_for, failure=failure)]))


class _ForwardingHandler(logging.Handler):
    """Sends log records of jobs to the supervisor, because logging is configured there."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(frame(LogLine(record.levelno, clean(self.format(record)[:MAX_LINE_CHARS]))))
        except Exception:  # noqa: BLE001 - as in every handler: a line that cannot be sent must not fail the job
            self.handleError(record)


def forward_logs(
    send: Callable[[bytes], None], level: int | None, find: Callable[[], Context | None] = find_by_context
) -> None:
    """Forward the logger `daybreak.job` from this level on, and keep its lines, from INFO on, with the output of the
    jobs; `find` returns the job that is printing. With None, in a thread, leave logging as it is and keep its lines."""
    connect(find)
    log = logging.getLogger("daybreak.job")
    if not any(isinstance(one, KeptLines) for one in log.filters):
        log.addFilter(KeptLines())
    if level is not None:
        forwarding = _ForwardingHandler(send)
        forwarding.setLevel(level)
        log.addHandler(forwarding)
        log.setLevel(min(level, logging.INFO))
        log.propagate = False

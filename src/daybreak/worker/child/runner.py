"""Runs one job and returns how it ended. Does not use a store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from daybreak import values
from daybreak.core.errors import BadArguments, DaybreakError, Permanent, StoreError, Suspend, TooLarge
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Failure
from daybreak.core.units import clean
from daybreak.tasks.context import MAX_STORED_BYTES, Context, TaskReporter, current
from daybreak.tasks.registry import Definition, Program
from daybreak.telemetry.submit_spans import enter_context, leave_context
from daybreak.values.file import MARK, NotStored
from daybreak.values.result import SPILL_ABOVE
from daybreak.worker.child.failures import failure_of, message_of
from daybreak.worker.child.forked import exit_if_forked
from daybreak.worker.child.job_files import JobFiles
from daybreak.worker.child.working_directory import WorkingDirectory
from daybreak.worker.wire import Ended, Work

_RESULT_ERRORS: Final = (DaybreakError, ValueError, TypeError, RecursionError, OSError)


class Runner:
    """Runs the tasks of one program.

    With `own_process` only jobs run in this process, so the working directory is restored after each of them."""

    def __init__(
        self,
        program: Program,
        shared: SimpleNamespace | None = None,
        scratch: str | None = None,
        *,
        own_process: bool = False,
        files: JobFiles | None = None,
    ) -> None:
        self._own_process = own_process
        self._files = files
        self._directory: WorkingDirectory | None = None
        self._program = program
        self._scratch = scratch
        self._shared = shared or SimpleNamespace()
        self._batch_tasks = frozenset(name for name, _ in program.batches())

    def remember_directory(self) -> None:
        """From now on every job starts in the directory that is current now, even if a job changes it."""
        if self._own_process:
            self._directory = WorkingDirectory()

    def restore_directory(self) -> None:
        if self._directory is not None:
            self._directory.restore()

    def is_batch(self, work: Work) -> bool:
        """Whether the job's function takes a list of items."""
        return work.task in self._batch_tasks

    def task_of(self, work: Work) -> Definition:
        return self._program[work.task]

    def context_of(self, work: Work, reporter: TaskReporter) -> Context:
        return Context(
            job=work.job,
            task=work.task,
            queue=work.queue,
            priority=work.priority,
            attempt=work.attempt,
            max_attempts=work.max_attempts,
            fence=work.fence,
            tags=work.tags,
            meta=decode_meta(work.meta or {}),
            owner=work.owner,
            run=work.run,
            checkpoint=work.checkpoint,
            shared=self._shared,
            reporter=reporter,
            scratch=self._scratch,
        )

    def run(self, work: Work, ctx: Context) -> Ended:
        """Run a sync task in this thread until it ends."""
        started_at, pid = time.monotonic(), os.getpid()
        token = current.set(ctx)
        trace = None if work.trace is None else enter_context(work.trace)
        try:
            task = self._program[work.task]
            if MARK in work.args and self._files is not None:
                self._files.fetch(work.args, ctx)
            args, kwargs = self._arguments(task, work, ctx)
            if not self._program.wraps:
                returned = task.function(*args, **kwargs)
            else:
                returned = None  # what it is if a wrap swallows an error
                with self.wrapped(ctx):
                    returned = task.function(*args, **kwargs)
            exit_if_forked(pid)
            if ctx.detached_for is not None:
                return _detached(work, returned, ctx.detached_for, started_at)
            return self.done(work, task, returned, started_at, ctx)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
            exit_if_forked(pid, error)
            return ended_by_error(work, ctx, error, started_at)
        finally:
            current.reset(token)
            leave_context(trace)
            self.restore_directory()
            ctx.clear()

    async def run_async(self, work: Work, ctx: Context) -> Ended:
        """Run an async task on the running event loop."""
        started_at, pid = time.monotonic(), os.getpid()
        current.set(ctx)
        if work.trace is not None:
            enter_context(work.trace)  # for this asyncio task alone
        try:
            task = self._program[work.task]
            if MARK in work.args and self._files is not None:
                await self._files.afetch(work.args, ctx)
            args, kwargs = self._arguments(task, work, ctx)
            if not self._program.wraps:
                returned = await task.function(*args, **kwargs)
            else:
                returned = None
                with self.wrapped(ctx):
                    returned = await task.function(*args, **kwargs)
            exit_if_forked(pid)
            if ctx.detached_for is not None:
                return _detached(work, returned, ctx.detached_for, started_at)
            return await self.adone(work, task, returned, started_at, ctx)
        except BaseException as error:  # noqa: BLE001
            exit_if_forked(pid, error)
            return ended_by_error(work, ctx, error, started_at)
        finally:
            ctx.clear()

    # -- arguments -----------------------------------------------------------------------------------------------------

    def item_of(self, task: Definition, work: Work, ctx: Context) -> Any:
        """The item of a job of a batch task, once its files are here."""
        if MARK in work.args and self._files is not None:
            self._files.fetch(work.args, ctx)
        return self._stored_arguments(task, work, ctx)[0][0]

    async def aitem_of(self, task: Definition, work: Work, ctx: Context) -> Any:
        """As `item_of`, for async tasks."""
        if MARK in work.args and self._files is not None:
            await self._files.afetch(work.args, ctx)
        return self._stored_arguments(task, work, ctx)[0][0]

    def _arguments(self, task: Definition, work: Work, ctx: Context) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = self._stored_arguments(task, work, ctx)
        return ([ctx, *args] if task.takes_context else args), kwargs

    def _stored_arguments(self, task: Definition, work: Work, ctx: Context) -> tuple[list[Any], dict[str, Any]]:
        stored = work.args
        if work.version != task.version:
            upgraded = task.upgraded(values.decode(stored), work.version)
            stored = task.arguments.encode_named(task.arguments.accept(upgraded))
        if MARK in stored and self._files is not None:
            return self._files.decode(task.arguments.decode, stored, ctx)
        return task.arguments.decode(stored)

    # -- results -------------------------------------------------------------------------------------------------------

    def done(self, work: Work, task: Definition, returned: object, started_at: float, ctx: Context) -> Ended:
        try:
            result = self._encoded_without_files(task, returned)
            if result is None:
                assert self._files is not None
                result = self._files.encode(task.result.encode, returned, ctx)
        except _RESULT_ERRORS as error:
            return _unstorable(work, returned, error, started_at)
        return Ended(work.seq, work.fence, "done", time.monotonic() - started_at, result, note=ctx.note)

    async def adone(self, work: Work, task: Definition, returned: object, started_at: float, ctx: Context) -> Ended:
        try:
            result = self._encoded_without_files(task, returned)
            if result is None:
                assert self._files is not None
                result = await self._files.aencode(task.result.encode, returned, ctx)
        except _RESULT_ERRORS as error:
            return _unstorable(work, returned, error, started_at)
        return Ended(work.seq, work.fence, "done", time.monotonic() - started_at, result, note=ctx.note)

    def _encoded_without_files(self, task: Definition, returned: object) -> bytes | None:
        """The encoded result; None if something of it must be stored as a file."""
        try:
            result = task.result.encode(returned)
        except NotStored:
            if self._files is None:
                raise
            return None
        if len(result) > MAX_STORED_BYTES:
            raise TooLarge(
                f"it takes {len(result):,} bytes, more than {MAX_STORED_BYTES:,}; write a file and return a File"
            )
        if self._files is not None and (len(result) > SPILL_ABOVE or MARK in result):
            return None
        return result

    def wrapped(self, ctx: Context) -> contextlib.AbstractContextManager[Any]:
        with contextlib.ExitStack() as around:
            for wrap in self._program.wraps:
                around.enter_context(wrap(ctx))
            return around.pop_all()


def _detached(work: Work, returned: object, detached_for: timedelta, started_at: float) -> Ended:
    ran_for = time.monotonic() - started_at
    if returned is None:
        return Ended(work.seq, work.fence, "detached", ran_for, detached_for=detached_for)
    failure = Failure(
        message=clean(
            f"it called ctx.detach() and returned a result: {_repr(returned)}\nReturn None: the result of a "
            "detached job is what app.finish() is given"
        ),
        kinds=("daybreak.errors.BadInput", "ValueError"),
        verdict="permanent",
    )
    return Ended(work.seq, work.fence, "failed", ran_for, failure=failure)


def _unstorable(work: Work, returned: object, error: Exception, started_at: float) -> Ended:
    # The work is done and cannot be undone: show at least what it returned.
    failure = Failure(
        message=clean(f"its result cannot be stored: {error}\nrepr of the result: {_repr(returned)}"),
        kinds=("daybreak.errors.NotEncodable", "ValueError"),
        verdict="transient" if isinstance(error, StoreError | OSError) else "permanent",
    )
    return Ended(work.seq, work.fence, "failed", time.monotonic() - started_at, failure=failure)


def _repr(value: object) -> str:
    try:
        return repr(value)[:2000]
    except Exception as error:  # noqa: BLE001
        return f"(none: {type(error).__name__})"


def ended_by_error(work: Work, ctx: Context | None, error: BaseException, started_at: float) -> Ended:
    """How a job ended that raised an error. Never raises, even if the error itself cannot be described."""
    try:
        return _ended_by_error(work, ctx, error, started_at)
    except BaseException as worse:  # noqa: BLE001
        name = type(error).__name__
        failure = Failure(message=f"{name}; it cannot be described: {type(worse).__name__}", kinds=(clean(name),))
        return Ended(work.seq, work.fence, "failed", time.monotonic() - started_at, failure=failure)


def _is_due_to_stop(error: BaseException, reason: str) -> bool:
    """Whether a job that was asked to stop ended for that reason.

    When the worker stops, any error counts as such, unless it says that the job must not run again. For the other
    reasons the supervisor decides what an error means (see `supervisor/outcomes.py`)."""
    return isinstance(error, asyncio.CancelledError) or (reason == "shutdown" and not isinstance(error, Permanent))


def _ended_by_error(work: Work, ctx: Context | None, error: BaseException, started_at: float) -> Ended:
    ran_for = time.monotonic() - started_at
    if isinstance(error, Suspend):
        return Ended(work.seq, work.fence, "suspended", ran_for, note=message_of(error))
    if ctx is not None and ctx.stopping is not None and _is_due_to_stop(error, ctx.stopping):
        match ctx.stopping:
            case "cancel":
                return Ended(work.seq, work.fence, "cancelled", ran_for)
            case "suspend":
                return Ended(work.seq, work.fence, "suspended", ran_for)
            case "timeout":
                return Ended(work.seq, work.fence, "timed out", ran_for)
            case _:
                return Ended(work.seq, work.fence, "handed back", ran_for)
    failure = failure_of(error)
    if isinstance(error, BadArguments):
        failure = Failure(message=failure.message, kinds=failure.kinds, verdict="permanent")
    return Ended(work.seq, work.fence, "failed", ran_for, failure=failure)

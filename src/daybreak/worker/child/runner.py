"""One piece of work -> how it ended. Touches no store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from types import SimpleNamespace
from typing import Any

from daybreak import values
from daybreak.core.errors import BadArguments, DaybreakError, Permanent, Suspend, TooLarge
from daybreak.core.model import Failure
from daybreak.core.units import clean
from daybreak.tasks.context import LARGEST, Context, TaskReporter, current
from daybreak.tasks.registry import Definition, Program
from daybreak.worker.child.failures import failure_of, message_of
from daybreak.worker.child.forked import leave_if_cloned
from daybreak.worker.child.working_directory import Home
from daybreak.worker.wire import Ended, Work


class Runner:
    """`own_process`: nothing but jobs runs here, so the working directory is theirs."""

    def __init__(
        self,
        program: Program,
        shared: SimpleNamespace | None = None,
        scratch: str | None = None,
        *,
        own_process: bool = False,
    ) -> None:
        self._own_process = own_process
        self._home: Home | None = None
        self._program = program
        self._scratch = scratch
        self._shared = shared or SimpleNamespace()

    def begin_here(self) -> None:
        """Jobs begin in the directory that is current now, wherever the one before has gone."""
        if self._own_process:
            self._home = Home()

    def go_home(self) -> None:
        if self._home is not None:
            self._home.restore()

    def context_of(self, work: Work, voice: TaskReporter) -> Context:
        return Context(
            job=work.job,
            task=work.task,
            queue=work.queue,
            priority=work.priority,
            attempt=work.attempt,
            max_attempts=work.max_attempts,
            fence=work.fence,
            tags=work.tags,
            meta=work.meta,
            owner=work.owner,
            run=work.run,
            checkpoint=work.checkpoint,
            shared=self._shared,
            voice=voice,
            scratch=self._scratch,
        )

    def run(self, work: Work, ctx: Context) -> Ended:
        """Run a sync task here, to its end."""
        began, pid = time.monotonic(), os.getpid()
        token = current.set(ctx)
        try:
            task = self._program[work.task]
            args, kwargs = self._arguments(task, work, ctx)
            if not self._program.wraps:
                returned = task.function(*args, **kwargs)
            else:
                returned = None  # what it is if a wrap swallows an error
                with self._wrapped(ctx):
                    returned = task.function(*args, **kwargs)
            leave_if_cloned(pid)
            return _done(work, task, returned, began)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
            leave_if_cloned(pid, error)
            return told(work, ctx, error, began)
        finally:
            current.reset(token)
            self.go_home()
            ctx.clear()

    async def arun(self, work: Work, ctx: Context) -> Ended:
        """Run an async task on this loop."""
        began, pid = time.monotonic(), os.getpid()
        current.set(ctx)
        try:
            task = self._program[work.task]
            args, kwargs = self._arguments(task, work, ctx)
            if not self._program.wraps:
                returned = await task.function(*args, **kwargs)
            else:
                returned = None
                with self._wrapped(ctx):
                    returned = await task.function(*args, **kwargs)
            leave_if_cloned(pid)
            return _done(work, task, returned, began)
        except BaseException as error:  # noqa: BLE001
            leave_if_cloned(pid, error)
            return told(work, ctx, error, began)
        finally:
            ctx.clear()

    def _arguments(self, task: Definition, work: Work, ctx: Context) -> tuple[list[Any], dict[str, Any]]:
        stored = work.args
        if work.version != task.version:
            upgraded = task.upgraded(values.decode(stored), work.version)
            stored = task.arguments.encode_named(task.arguments.accept(upgraded))
        args, kwargs = task.arguments.decode(stored)
        return ([ctx, *args] if task.takes_context else args), kwargs

    def _wrapped(self, ctx: Context) -> contextlib.AbstractContextManager[Any]:
        with contextlib.ExitStack() as around:
            for wrap in self._program.wraps:
                around.enter_context(wrap(ctx))
            return around.pop_all()


def _done(work: Work, task: Definition, returned: object, began: float) -> Ended:
    try:
        result = task.result.encode(returned)
        if len(result) > LARGEST:
            raise TooLarge(f"it takes {len(result):,} bytes, more than {LARGEST:,}; write a file and return its path")
    except (DaybreakError, ValueError, TypeError, RecursionError) as error:
        # The work is done and cannot be undone: what it returned is at least shown.
        failure = Failure(
            message=clean(f"its result cannot be kept: {error}\nrepr of the result: {_repr(returned)}"),
            kinds=("daybreak.errors.NotEncodable", "ValueError"),
            verdict="permanent",
        )
        return Ended(work.seq, "failed", time.monotonic() - began, failure=failure)
    return Ended(work.seq, "done", time.monotonic() - began, result)


def _repr(value: object) -> str:
    try:
        return repr(value)[:2000]
    except Exception as error:  # noqa: BLE001
        return f"(none: {type(error).__name__})"


def told(work: Work, ctx: Context | None, error: BaseException, began: float) -> Ended:
    """How work ended that raised; whatever the error is made of, it is told."""
    try:
        return _raised(work, ctx, error, began)
    except BaseException as worse:  # noqa: BLE001
        name = type(error).__name__
        failure = Failure(message=f"{name}; more cannot be told: {type(worse).__name__}", kinds=(clean(name),))
        return Ended(work.seq, "failed", time.monotonic() - began, failure=failure)


def _gives_in(error: BaseException, why: str) -> bool:
    """Whether it ended because it was asked to. One that is cancelled at a worker's stop may stumble on its way out,
    unless it rules itself that it must not run again; of what else it was asked, and why, the supervisor knows."""
    return isinstance(error, asyncio.CancelledError) or (why == "shutdown" and not isinstance(error, Permanent))


def _raised(work: Work, ctx: Context | None, error: BaseException, began: float) -> Ended:
    ran_for = time.monotonic() - began
    if isinstance(error, Suspend):
        return Ended(work.seq, "suspended", ran_for, note=message_of(error))
    if ctx is not None and ctx.stopping is not None and _gives_in(error, ctx.stopping):
        match ctx.stopping:
            case "cancel":
                return Ended(work.seq, "cancelled", ran_for)
            case "suspend":
                return Ended(work.seq, "suspended", ran_for)
            case "timeout":
                return Ended(work.seq, "timed out", ran_for)
            case _:
                return Ended(work.seq, "handed back", ran_for)
    failure = failure_of(error)
    if isinstance(error, BadArguments):
        failure = Failure(message=failure.message, kinds=failure.kinds, verdict="permanent")
    return Ended(work.seq, "failed", ran_for, failure=failure)

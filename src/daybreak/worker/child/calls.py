"""A call of a batch task in a child: the function gets the items of several jobs, and each job has its own outcome.

If the function raises, it is called again with half of the items (`policy/bisection.py`). What is known of a job is
reported at once, before the next part is called: if this process dies then, only the jobs of that part are lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from daybreak.core.errors import Permanent, Suspend
from daybreak.core.units import counted
from daybreak.policy.bisection import Bisection
from daybreak.policy.retry import classify, delay_for
from daybreak.tasks.call_context import CallContext
from daybreak.tasks.context import Context, TaskReporter, current
from daybreak.telemetry.submit_spans import enter_context, leave_context
from daybreak.worker.child.failures import failure_of
from daybreak.worker.child.forked import exit_if_forked
from daybreak.worker.child.runner import Runner, ended_by_error
from daybreak.worker.wire import Ended, StopReason, Work

_STATUS: Final[dict[str, Any]] = {"cancel": "cancelled", "suspend": "suspended", "timeout": "timed out"}


class BadResults(Permanent):
    """A batch task did not return a result for each item."""


class BatchCall:
    """One call of a batch task, with all that becomes of it. `reporter_of` makes the reporter of a job.

    `on_part` is called before each call of the function, with the place of its jobs in the call. `report` is called
    with the jobs whose outcome is known, each exactly once; what it gets is reported when it returns."""

    def __init__(
        self,
        runner: Runner,
        works: Sequence[Work],
        reporter_of: Callable[[Work], TaskReporter],
        *,
        on_part: Callable[[range], None],
        report: Callable[[list[Ended], TaskReporter | None], None],
    ) -> None:
        self.ctx: CallContext | None = None
        self._runner = runner
        self._works = list(works)
        self._task = runner.task_of(works[0])
        self._reporter_of = reporter_of
        self._on_part = on_part
        self._report = report
        # Each job has a context of its own beside that of the call: for its files, and to know why it was stopped.
        self._contexts: list[Context] = []
        self._stopped: dict[tuple[int, int], StopReason] = {}
        self._in_function: Sequence[int] = ()
        self._ready: list[int] = []
        self._items: list[Any] = []
        self._bisection = Bisection(0)
        self._reporter: TaskReporter | None = None
        self._retry_delay = timedelta()

    def stop(self, seq: int, fence: int, reason: StopReason) -> bool:
        """Ask a job to stop. True if all jobs that are in the function now were asked: then the call itself is. May be
        called by another thread."""
        self._stopped[seq, fence] = reason
        return self._stop_if_all_are()

    def _stop_if_all_are(self) -> bool:
        ctx, reasons = self.ctx, [self._reason(number) for number in self._in_function]
        if ctx is None or not reasons or reasons[0] is None or not all(reasons):
            return False
        ctx.ask_to_stop(reasons[0])
        return True

    def _reason(self, number: int) -> StopReason | None:
        work = self._works[number]
        return self._stopped.get((work.seq, work.fence))

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Call a sync function in this thread until the outcome of every job is known and reported."""
        for number, work in enumerate(self._works):
            ctx = self._context_of(work)
            try:
                self._add(number, self._runner.item_of(self._task, work, ctx))
            except BaseException as error:  # noqa: BLE001 - an item that cannot be read fails alone
                self._report_error([number], error, time.monotonic())
        self._bisection = Bisection(len(self._ready))
        while (part := self._next_part()) is not None:
            numbers, started_at, pid = self._begin(part), time.monotonic(), os.getpid()
            if not numbers:
                continue
            assert self.ctx is not None
            token, trace = current.set(self.ctx), _enter_trace(self._works[numbers[0]])
            try:
                arguments, returned = self._arguments(part, numbers), None  # None if a wrap swallows an error
                with self._runner.wrapped(self.ctx):
                    returned = self._task.function(*arguments)
                exit_if_forked(pid)
                results = self._checked(returned, len(numbers))
                ended = [self._ended(*pair, started_at) for pair in zip(numbers, results, strict=True)]
            except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
                exit_if_forked(pid, error)
                self._on_error(part, numbers, error, started_at)
            else:
                self._on_returned(ended)
            finally:
                current.reset(token)
                leave_context(trace)
                self._runner.restore_directory()
                self._end_part()

    async def run_async(self) -> None:
        """Await an async function on the running event loop until the outcome of every job is known and reported."""
        for number, work in enumerate(self._works):
            ctx = self._context_of(work)
            try:
                self._add(number, await self._runner.aitem_of(self._task, work, ctx))
            except BaseException as error:  # noqa: BLE001
                self._report_error([number], error, time.monotonic())
        self._bisection = Bisection(len(self._ready))
        while (part := self._next_part()) is not None:
            numbers, started_at, pid = self._begin(part), time.monotonic(), os.getpid()
            if not numbers:
                continue
            assert self.ctx is not None
            current.set(self.ctx)
            _enter_trace(self._works[numbers[0]])  # for this asyncio task alone
            try:
                arguments, returned = self._arguments(part, numbers), None  # None if a wrap swallows an error
                with self._runner.wrapped(self.ctx):
                    returned = await self._task.function(*arguments)
                exit_if_forked(pid)
                results = self._checked(returned, len(numbers))
                ended = [await self._aended(*pair, started_at) for pair in zip(numbers, results, strict=True)]
            except BaseException as error:  # noqa: BLE001
                exit_if_forked(pid, error)
                self._on_error(part, numbers, error, started_at)
            else:
                self._on_returned(ended)
            finally:
                self._end_part()

    def ended_by(self, work: Work, error: BaseException, started_at: float) -> Ended:
        """How a job of the call ended that raised this error."""
        ctx = Context()
        reason = self._stopped.get((work.seq, work.fence))
        if reason is not None:
            ctx.ask_to_stop(reason)
        return ended_by_error(work, ctx, error, started_at)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _context_of(self, work: Work) -> Context:
        ctx = self._runner.context_of(work, self._reporter_of(work))
        self._contexts.append(ctx)
        return ctx

    def _add(self, number: int, item: Any) -> None:
        self._ready.append(number)
        self._items.append(item)

    def _next_part(self) -> range | None:
        if self._bisection.is_outage:
            self._hand_back([self._ready[place] for place in self._bisection.rest()], self._retry_delay)
        return self._bisection.next_part()

    def _begin(self, part: range) -> list[int]:
        """The jobs of this part that were not asked to stop. The others end here."""
        numbers, stopped = [], []
        for number in self._ready[part.start : part.stop]:
            reason = self._reason(number)
            if reason is None:
                numbers.append(number)
            else:
                stopped.append(self._unrun(number, _STATUS.get(reason, "handed back")))
        if stopped:
            self._report(stopped, None)
        if numbers:
            works = [self._works[number] for number in numbers]
            self._reporter = self._reporter_of(works[0])
            self.ctx = CallContext(self._runner.context_of(works[0], self._reporter), [work.job for work in works])
            self._in_function = numbers
            self._on_part(range(numbers[0], numbers[-1] + 1))
            self._stop_if_all_are()  # asked between the two
        return numbers

    def _arguments(self, part: range, numbers: list[int]) -> list[Any]:
        wanted = set(numbers)
        items = [self._items[place] for place in part if self._ready[place] in wanted]
        return [self.ctx, items] if self._task.takes_context else [items]

    def _checked(self, returned: object, count: int) -> Sequence[Any]:
        """The results of a call of so many items."""
        name = self._task.name
        if not isinstance(returned, Sequence) or isinstance(returned, str | bytes | bytearray):
            raise BadResults(
                f"batch task {name!r} returned {type(returned).__name__}, not a list: return a result for each item, "
                "in order; for an item that failed, return its exception"
            )
        if len(returned) != count:
            raise BadResults(
                f"batch task {name!r} returned {counted(len(returned), 'result')} for {counted(count, 'item')}: "
                "return a result for each, in order; for an item that failed, return its exception"
            )
        return returned

    def _end_part(self) -> None:
        ctx, self.ctx, self._in_function, self._reporter = self.ctx, None, (), None
        if ctx is not None:
            ctx.clear()

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _ended(self, number: int, returned: object, started_at: float) -> Ended:
        if isinstance(returned, BaseException):
            return self._ended_by(number, returned, started_at)
        try:
            return self._runner.done(self._works[number], self._task, returned, started_at, self._contexts[number])
        except BaseException as error:  # noqa: BLE001 - a result that cannot be stored fails its job alone
            return self._ended_by(number, error, started_at)

    async def _aended(self, number: int, returned: object, started_at: float) -> Ended:
        if isinstance(returned, BaseException):
            return self._ended_by(number, returned, started_at)
        work, ctx = self._works[number], self._contexts[number]
        try:
            return await self._runner.adone(work, self._task, returned, started_at, ctx)
        except BaseException as error:  # noqa: BLE001
            return self._ended_by(number, error, started_at)

    def _ended_by(self, number: int, error: BaseException, started_at: float) -> Ended:
        return self.ended_by(self._works[number], error, started_at)

    def _on_returned(self, ended: list[Ended]) -> None:
        self._bisection.succeeded()
        self._report(ended, self._reporter)

    def _on_error(self, part: range, numbers: list[int], error: BaseException, started_at: float) -> None:
        assert self.ctx is not None
        if self.ctx.stopping is None and isinstance(error, Exception | SystemExit) and not _is_for_all(error):
            failure, retry = failure_of(error), self._task.options.retry
            # Those that are not tried come back with those that were.
            self._retry_delay = delay_for(retry, 1, 0.5, failure.retry_after)
            if self._bisection.failed(part, is_transient=classify(failure, retry) == "transient"):
                return
        elif self.ctx.stopping is None and not isinstance(error, Exception):
            self._hand_back([self._ready[place] for place in self._bisection.rest()], None)
        self._report_error(numbers, error, started_at)

    def _report_error(self, numbers: list[int], error: BaseException, started_at: float) -> None:
        self._report([self._ended_by(number, error, started_at) for number in numbers], self._reporter)

    def _hand_back(self, numbers: list[int], delay: timedelta | None) -> None:
        if numbers:
            self._report([self._unrun(number, "handed back", delay) for number in numbers], None)

    def _unrun(self, number: int, status: Any, delay: timedelta | None = None) -> Ended:
        work = self._works[number]
        return Ended(work.seq, work.fence, status, 0.0, delay=delay)


def _is_for_all(error: BaseException) -> bool:
    """Whether the error is about the call, so that calling again with fewer items would change nothing."""
    return isinstance(error, Suspend | BadResults | asyncio.CancelledError)


def _enter_trace(work: Work) -> Any:
    return None if work.trace is None else enter_context(work.trace)

"""Inline mode: an app whose jobs run at once, in the thread that submits them.

Claim, runner, policy and settlement are the real ones, on a memory store. Only the waiting is left out: before a retry,
the clock moves to the time when it is due. There is no worker, no child process and no background thread."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace

from daybreak import values
from daybreak.api.app import Daybreak
from daybreak.client.leases import lease_of
from daybreak.client.saga_record import SAGA_KIND, queues_of, read_sagas
from daybreak.core.errors import DaybreakError
from daybreak.core.model import Batching, Ending, HandedBack, JobSpec, Lease, Lost, State
from daybreak.core.units import duration, moment, span
from daybreak.services.saga_driver import SagaDriver
from daybreak.store.protocol import LATEST, SAGA_MARK_KIND, Filter, Inserted, Query
from daybreak.tasks.context import Context
from daybreak.testing.clock import HandClock
from daybreak.testing.inline_doubles import InlinePortal, InlineReporter, InlineSessions, InlineStore, driven
from daybreak.worker.child.calls import BatchCall
from daybreak.worker.child.job_files import JobFiles
from daybreak.worker.child.runner import Runner
from daybreak.worker.child.setup import enter_setups
from daybreak.worker.child.working_directory import WorkingDirectory
from daybreak.worker.supervisor.child import HeldLease, work_of
from daybreak.worker.supervisor.lease_source import ClaimRequest, LocalSource, Settled
from daybreak.worker.supervisor.outcomes import outcome_after_stop, outcome_of
from daybreak.worker.supervisor.time_limits import written_limit
from daybreak.worker.wire import Ended, Work

TRIES: Final = 100  # attempts of one job in one call
MAX_DEPTH: Final = 20  # of jobs that submit jobs; a job submitted deeper waits until those above it have ended
MAX_SUBMITTED: Final = 10_000  # jobs that jobs submit in one call
LEASE_FOR: Final = timedelta(hours=1)


def inline(app: Daybreak, *, clock: HandClock | None = None, tries: int = TRIES) -> Inline:
    """Put an app into inline mode for a test: inside the block it uses a new memory store, and its jobs run at once.

    with inline(app) as run:    # or `async with`; without a `clock`, its clock starts at the current time
        job = task.submit(...)  # returns when the job has ended, or at once if the job is scheduled for later
        run.advance("1h")       # runs the jobs that are due within the hour

    If a job still fails after `tries` attempts in one call, the test fails with an error."""
    return Inline(app, clock or HandClock(datetime.now(UTC)), tries)


class Inline:
    """Inline mode as the test uses it: the clock, the store, and `advance`."""

    def __init__(self, app: Daybreak, clock: HandClock, tries: int) -> None:
        self.app = app
        self.clock = clock
        self.store = InlineStore(clock)
        self.files = Path(tempfile.gettempdir()) / f"daybreak-inline-{secrets.token_hex(8)}"
        self._tries = tries
        self._portal = InlinePortal()
        self._sessions = InlineSessions(self, self._portal, app.by)
        self._restore = contextlib.ExitStack()
        self._around: contextlib.AsyncExitStack | None = None
        self._runner = Runner(app.program)
        self._queues: dict[str, None] = dict.fromkeys(app.program.queues())
        self._sagas = SagaDriver(self.store, clock, name="inline")
        self._retrying: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        self._depth = 0
        self._begun = 0
        self._endless: str | None = None
        self._cursor = LATEST
        self._blocking = _Run(self._run_blocking, self._call_blocking)
        self._async = _Run(self._run_async, self._call_async)

    # -- the block -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._portal.run_here(self._begin())
        except BaseException:
            self._portal.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._portal.run_here(self._end())
        finally:
            self._portal.close()

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._end()
        finally:
            self._portal.close()

    async def _begin(self) -> None:
        app, shared = self.app, SimpleNamespace()
        async with contextlib.AsyncExitStack() as around:
            around.callback(self._restore.close)
            self._replace(app, "world", self.clock)
            self._replace(app, "_open_sessions", self._sessions)
            self._replace(app.hooks, "world", self.clock)
            self._replace(app.hooks, "inline", True)
            # The client reports the submit at once. The app would report it when its call returns, after the job ended.
            self._report_submitted = app.hooks.submitted
            self._replace(app.hooks, "submitted", lambda *_: None)
            self._replace(app, "worker", lambda **_: contextlib.nullcontext())
            self._replace(app, "aworker", lambda **_: contextlib.nullcontext())
            self._replace(app, "work", lambda *_, **__: self.work())
            self._replace(app, "awork", lambda *_, **__: self.awork())
            self._cursor = (await self.store.events(LATEST)).cursor
            for lifespan in app.program.lifespans:
                given = await _enter(around, lifespan())
                if isinstance(given, dict):
                    shared.__dict__.update(values.decode(values.encode(given, "lifespan")))
            await around.enter_async_context(await enter_setups(app.program.setups, shared))
            around.callback(shutil.rmtree, self.files, ignore_errors=True)
            blobs = await self._sessions.files.blobs()
            self._runner = Runner(app.program, shared, files=JobFiles(blobs.location if blobs else ""))
            self._around = around.pop_all()

    def _replace(self, where: object, name: str, value: object) -> None:
        names = vars(where)
        if name in names:
            self._restore.callback(names.__setitem__, name, names[name])
        else:
            self._restore.callback(names.pop, name)
        names[name] = value

    async def _end(self) -> None:
        if self._around is not None:
            around, self._around = self._around, None
            await around.aclose()

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, by: object) -> None:
        """Move the clock, and run each job that becomes due at its time: `run.advance("1h")`."""
        driven(self._advance(duration(by, "advance"), self._blocking))

    async def aadvance(self, by: object) -> None:
        """Move the clock, and run each job that becomes due at its time: `await run.aadvance("1h")`."""
        await self._advance(duration(by, "advance"), self._async)

    async def _advance(self, by: timedelta, run: _Run) -> None:
        until = self.clock.steady() + span(by)
        while True:
            advanced = await self.store.advance()
            deadline = await self._time_out_detached()
            await self._work(run)
            left = timedelta(microseconds=until - self.clock.steady())
            if advanced.again:
                continue
            if left <= timedelta():
                return
            waits = [wait for wait in ((await self.store.advance()).next_in, deadline) if wait is not None]
            next_in = min(waits, default=None)
            self.clock.advance(left if next_in is None else min(left, max(next_in, timedelta(microseconds=1))))

    async def _time_out_detached(self) -> timedelta | None:
        """Time out jobs whose work went on elsewhere beyond its deadline, as a reaper does. Returns the time until the
        next deadline."""
        now, waits = moment(self.clock.wall()), []
        running = await self.store.find(Query(filter=Filter(states=frozenset({State.RUNNING})), limit=MAX_SUBMITTED))
        for job in running.jobs:
            if job.detached and job.leased_until is not None:
                if job.leased_until > now:
                    waits.append(job.leased_until - now)
                else:
                    lease = replace(lease_of(job), checkpoint=job.checkpoint, detached=True)
                    for settled in (await self._source().exchange([(lease, Lost())], None)).settled:
                        self._settled(settled)
        return min(waits, default=None)

    # -- work ----------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run the jobs that are due now. Calls through the app do this by themselves."""
        driven(self._work(self._blocking))

    async def awork(self) -> None:
        """Run the jobs that are due now. Calls through the app do this by themselves."""
        await self._work(self._async)

    async def _work(self, run: _Run) -> None:
        if self._depth >= MAX_DEPTH:
            return
        if self._depth == 0:
            self._tried, self._begun, self._endless = {}, 0, None
        self._depth += 1
        try:
            await self._rounds(run)
        finally:
            self._depth -= 1

    async def _rounds(self, run: _Run) -> None:
        """Claim, run and settle one job at a time, or one call of a batch task, until no job is due and no retry is
        pending. A call that is not full does not linger: nothing would fill it."""
        ended: list[tuple[Lease, Ending]] = []
        source, queues = self._source(), len(self._queues)
        while True:
            if len(self._queues) != queues:
                source, queues = self._source(), len(self._queues)
            program = self.app.program
            batches = {task: Batching(size=one.size) for task, one in program.batches().items()}
            taken = await source.exchange(ended, ClaimRequest(program.known(), 1, batches=batches))
            for settled in taken.settled:
                self._settled(settled)
            ended = []
            await self._call_durable_hooks()
            for lease in taken.leases:
                await self._refuse_endless(lease, source)
                self.app.hooks.started(lease)
            if taken.leases and self.app.program[taken.leases[0].spec.task].batching is not None:
                ended = await self._perform_call(taken.leases, run, source)
            elif taken.leases:
                [lease] = taken.leases
                ended = [(lease, await self._perform(lease, run, source))]
            if taken.leases or taken.again or await self._drive_sagas() or self._move_to_next_retry():
                continue
            return

    async def _drive_sagas(self) -> bool:
        """Submit the next steps and undos of sagas. Returns whether there is more to do."""
        marks = await self.store.records(SAGA_MARK_KIND)
        if not marks:
            return False
        before, queues = await self._revisions_of_sagas(), len(self._queues)
        for saga in await read_sagas(self.store):
            self._queues |= dict.fromkeys(queues_of(saga.saga.definition))
        await self._sagas.sweep(marks)
        return await self._revisions_of_sagas() != before or len(self._queues) != queues

    async def _revisions_of_sagas(self) -> list[tuple[str, int]]:
        return [(record.name, record.revision) for record in await self.store.records(SAGA_KIND)]

    def _source(self) -> LocalSource:
        return LocalSource(self.store, self.clock, worker="inline", queues=tuple(self._queues), lease_for=LEASE_FOR)

    async def _refuse_endless(self, lease: Lease, source: LocalSource) -> None:
        self._retrying.pop(lease.job, None)
        tried = self._tried[lease.job] = self._tried.get(lease.job, 0) + 1
        self._begun += self._depth > 1
        if tried > self._tries:
            self._endless = (
                f"job {lease.job} ({lease.spec.task}) still fails after {self._tries} attempts in one call: "
                "give the task fewer attempts, or raise the limit with inline(app, tries=...)"
            )
        elif self._begun > MAX_SUBMITTED:
            self._endless = f"jobs have submitted more than {MAX_SUBMITTED:,} jobs in one call: they would never end"
        if self._endless is not None:
            # Inside a job this error only fails that job, so the next job raises it again.
            await source.exchange([(lease, HandedBack())], None)
            raise DaybreakError(self._endless)

    async def _perform(self, lease: Lease, run: _Run, source: LocalSource) -> Ending:
        limit = written_limit(lease)
        held = HeldLease(lease, None if limit is None else limit.total_seconds())
        work = work_of(lease)
        home = WorkingDirectory()  # a test may have changed the directory since the last job
        try:
            reporter = InlineReporter(self.store, lease, self.app.hooks.progressed)
            ended = await run.job(work, self._runner.context_of(work, reporter), held)
        finally:
            home.restore()
            home.close()
        if _is_interrupt(ended):
            await source.exchange([(lease, HandedBack())], None)
            raise KeyboardInterrupt
        return outcome_after_stop(held, outcome_of(held, ended), self.clock.steady() / 1_000_000)

    async def _perform_call(self, leases: list[Lease], run: _Run, source: LocalSource) -> list[tuple[Lease, Ending]]:
        """Run the jobs of a batch task that were claimed together in one call."""
        held: dict[int, HeldLease] = {}
        for lease in leases:
            limit = written_limit(lease)
            held[lease.seq] = HeldLease(lease, None if limit is None else limit.total_seconds())
        reports: list[Ended] = []
        call = BatchCall(
            self._runner,
            [work_of(lease) for lease in leases],
            lambda work: InlineReporter(self.store, held[work.seq].lease, self.app.hooks.progressed, leases),
            on_part=lambda _: None,
            report=lambda ended, _: reports.extend(ended),
        )
        home = WorkingDirectory()
        try:
            await run.call(call, list(held.values()))
        finally:
            home.restore()
            home.close()
        if any(map(_is_interrupt, reports)):
            await source.exchange([(lease, HandedBack()) for lease in leases], None)
            raise KeyboardInterrupt
        now = self.clock.steady() / 1_000_000
        outcomes = {one.seq: outcome_after_stop(held[one.seq], outcome_of(held[one.seq], one), now) for one in reports}
        return [(lease, outcomes[lease.seq]) for lease in leases]

    async def _call_async(self, call: BatchCall, held: list[HeldLease]) -> None:
        if not self.app.program[held[0].lease.spec.task].is_async:
            call.run()
        else:
            await self._call_limited(call, held)

    async def _call_blocking(self, call: BatchCall, held: list[HeldLease]) -> None:
        if not self.app.program[held[0].lease.spec.task].is_async:
            call.run()
        else:
            self._portal.run(self._call_limited(call, held))

    async def _call_limited(self, call: BatchCall, held: list[HeldLease]) -> None:
        """As `_run_limited`, with the longest of the limits."""
        running = asyncio.create_task(call.run_async())
        limits = [one.limit for one in held if one.limit is not None]

        def stop() -> None:
            for one in held:
                one.stop_reason = "timeout"
                if call.stop(one.lease.seq, one.lease.fence, "timeout"):
                    running.cancel()

        timer = None
        if len(limits) == len(held):
            timer = asyncio.get_running_loop().call_later(max(limits), stop)
        try:
            await running
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_async(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """Run on the running loop. A sync task blocks it, as it would in the caller's own code."""
        if not self.app.program[work.task].is_async:
            return self._runner.run(work, ctx)
        return await self._run_limited(work, ctx, held)

    async def _run_blocking(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """Run in the caller's thread."""
        if not self.app.program[work.task].is_async:
            return self._runner.run(work, ctx)
        return self._portal.run(self._run_limited(work, ctx, held))

    async def _run_limited(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """Apply the time limit as a worker does: ask the task to stop, and cancel it at its next await."""
        running = asyncio.create_task(self._runner.run_async(work, ctx))
        if held.limit is None:
            return await running

        def stop() -> None:
            held.stop_reason = "timeout"
            ctx.ask_to_stop("timeout")
            running.cancel()

        timer = asyncio.get_running_loop().call_later(held.limit, stop)
        try:
            return await running
        finally:
            timer.cancel()

    def _settled(self, settled: Settled) -> None:
        if settled.accepted:
            settlement = settled.settlement
            if settlement.state is State.SCHEDULED and settlement.delay is not None:
                self._retrying[settlement.job] = self.clock.steady() + span(settlement.delay)
            self.app.hooks.settled(settled)

    def _move_to_next_retry(self) -> bool:
        if not self._retrying:
            return False
        job = min(self._retrying, key=self._retrying.__getitem__)
        wait = self._retrying.pop(job) - self.clock.steady()
        if wait > 0:
            self.clock.advance(timedelta(microseconds=wait))
        return True

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def accepted(self, specs: Sequence[JobSpec], answers: Sequence[Inserted]) -> None:
        for spec, answer in zip(specs, answers, strict=True):
            if answer.is_new:
                self._queues[spec.queue] = None
                self._report_submitted(spec, answer.job)

    async def _call_durable_hooks(self) -> None:
        hooks = self.app.hooks.durable
        feed = await self.store.events(self._cursor)
        self._cursor = feed.cursor
        for event in feed.events:
            for hook in hooks:
                if event.kind in hook.kinds:
                    self.app.hooks.call_inline(hook, event)


class _Run(NamedTuple):
    """How jobs, and calls of batch tasks, are run: on the running loop, or in the caller's thread."""

    job: Callable[[Work, Context, HeldLease], Coroutine[Any, Any, Ended]]
    call: Callable[[BatchCall, list[HeldLease]], Coroutine[Any, Any, None]]


def _is_interrupt(ended: Ended) -> bool:
    return ended.failure is not None and ended.failure.kinds[:1] == ("KeyboardInterrupt",)


async def _enter(around: contextlib.AsyncExitStack, manager: Any) -> Any:
    if isinstance(manager, contextlib.AbstractAsyncContextManager):
        return await around.enter_async_context(manager)
    return around.enter_context(manager)

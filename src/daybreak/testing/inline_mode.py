"""Inline mode: an app whose jobs run at once, in the thread that submits them.

What runs is the real thing: claim, runner, policy and settlement, on a memory store. Only the waiting is left out: a
retry moves the clock to when it is due. No worker, no child process, no thread, nothing in the background."""

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
from typing import Any, Final, Self

from daybreak import values
from daybreak.api.app import Daybreak
from daybreak.core.errors import DaybreakError
from daybreak.core.model import HandedBack, JobSpec, Lease, Outcome, State
from daybreak.core.units import duration, span
from daybreak.store.protocol import LATEST, Inserted, Verdict
from daybreak.tasks.context import Context
from daybreak.testing.clock import HandClock
from daybreak.testing.inline_doubles import InlinePortal, InlineSessions, InlineStore, InlineVoice, driven
from daybreak.worker.child.job_files import JobFiles
from daybreak.worker.child.runner import Runner
from daybreak.worker.child.setup import enter_setups
from daybreak.worker.child.working_directory import WorkingDirectory
from daybreak.worker.supervisor.child import HeldLease, work_of
from daybreak.worker.supervisor.lease_source import ClaimRequest, LocalSource, Settled
from daybreak.worker.supervisor.outcomes import outcome_after_stop, outcome_of
from daybreak.worker.supervisor.time_limits import written_limit
from daybreak.worker.wire import Ended, Work

TRIES: Final = 100  # of one job in one go
DEEP: Final = 20  # jobs within jobs; what is submitted deeper waits for those above it
MANY: Final = 10_000  # jobs that jobs submit in one go
LEASE_FOR: Final = timedelta(hours=1)


def inline(app: Daybreak, *, clock: HandClock | None = None, tries: int = TRIES) -> Inline:
    """An app whose jobs run at once, for a test: inside the block it works on a fresh memory store.

    with inline(app) as run:    or `async with`; the clock starts now, if none is given
        job = task.submit(...)  returns once the job has ended, or waits for its time
        run.advance("1h")       which then has come

    A job that was tried `tries` times in one go and still fails ends the test, not the job."""
    return Inline(app, clock or HandClock(datetime.now(UTC)), tries)


class Inline:
    """What a test sees of inline mode: the clock, the store, and `advance`."""

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
        self._retrying: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        self._depth = 0
        self._begun = 0
        self._endless: str | None = None
        self._cursor = LATEST

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
            # Told by the client, at once: the face does so only when its call returns, and the job has ended by then.
            self._tell_submitted = app.hooks.submitted
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
        """Let time pass, and run what falls due in it, each at its time: `run.advance("1h")`."""
        driven(self._advance(duration(by, "advance"), self._run_blocking))

    async def aadvance(self, by: object) -> None:
        """Let time pass, and run what falls due in it, each at its time: `await run.aadvance("1h")`."""
        await self._advance(duration(by, "advance"), self._run_async)

    async def _advance(self, by: timedelta, run: _Run) -> None:
        until = self.clock.steady() + span(by)
        while True:
            advanced = await self.store.advance()
            await self._work(run)
            left = timedelta(microseconds=until - self.clock.steady())
            if advanced.again:
                continue
            if left <= timedelta():
                return
            next_in = (await self.store.advance()).next_in
            self.clock.advance(left if next_in is None else min(left, max(next_in, timedelta(microseconds=1))))

    # -- work ----------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run what is due now. Whatever goes through the app does so by itself."""
        driven(self._work(self._run_blocking))

    async def awork(self) -> None:
        """Run what is due now. Whatever goes through the app does so by itself."""
        await self._work(self._run_async)

    async def _work(self, run: _Run) -> None:
        if self._depth >= DEEP:
            return
        if self._depth == 0:
            self._tried, self._begun, self._endless = {}, 0, None
        self._depth += 1
        try:
            await self._rounds(run)
        finally:
            self._depth -= 1

    async def _rounds(self, run: _Run) -> None:
        """Claim, run, settle, one job at a time, until nothing is due and no retry is left to wait for."""
        ended: list[tuple[Lease, Outcome]] = []
        source, queues = self._source(), len(self._queues)
        while True:
            if len(self._queues) != queues:
                source, queues = self._source(), len(self._queues)
            taken = await source.exchange(ended, ClaimRequest(self.app.program.known(), 1))
            for settled in taken.settled:
                self._settled(settled)
            ended = []
            await self._tell_durable()
            for lease in taken.leases:
                await self._refuse_endless(lease, source)
                self.app.hooks.started(lease)
                ended.append((lease, await self._perform(lease, run, source)))
            if not taken.leases and not taken.again and not self._move_to_next_retry():
                return

    def _source(self) -> LocalSource:
        return LocalSource(self.store, self.clock, worker="inline", queues=tuple(self._queues), lease_for=LEASE_FOR)

    async def _refuse_endless(self, lease: Lease, source: LocalSource) -> None:
        self._retrying.pop(lease.job, None)
        tried = self._tried[lease.job] = self._tried.get(lease.job, 0) + 1
        self._begun += self._depth > 1
        if tried > self._tries:
            self._endless = (
                f"job {lease.job} ({lease.spec.task}) was tried {self._tries} times in one go and still fails: "
                "give the task fewer attempts, or inline(app, tries=...) more"
            )
        elif self._begun > MANY:
            self._endless = f"jobs have submitted more than {MANY:,} jobs in one go: they would never end"
        if (
            self._endless is not None
        ):  # raised inside a job it is no more than that job's failure: the next raises it again
            await source.exchange([(lease, HandedBack())], None)
            raise DaybreakError(self._endless)

    async def _perform(self, lease: Lease, run: _Run, source: LocalSource) -> Outcome:
        limit = written_limit(lease)
        held = HeldLease(lease, None if limit is None else limit.total_seconds())
        work = work_of(lease)
        home = WorkingDirectory()  # a test may have gone elsewhere since the last job
        try:
            voice = InlineVoice(self.store, lease, self.app.hooks.progressed)
            ended = await run(work, self._runner.context_of(work, voice), held)
        finally:
            home.restore()
            home.close()
        if ended.failure is not None and ended.failure.kinds[:1] == ("KeyboardInterrupt",):
            await source.exchange([(lease, HandedBack())], None)
            raise KeyboardInterrupt
        return outcome_after_stop(held, outcome_of(held, ended))

    async def _run_async(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """In the running loop; a sync task holds it up, as it would in the caller's own code."""
        if not self.app.program[work.task].is_async:
            return self._runner.run(work, ctx)
        return await self._run_limited(work, ctx, held)

    async def _run_blocking(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """In the thread that waits."""
        if not self.app.program[work.task].is_async:
            return self._runner.run(work, ctx)
        return self._portal.run(self._run_limited(work, ctx, held))

    async def _run_limited(self, work: Work, ctx: Context, held: HeldLease) -> Ended:
        """Ended by its time limit as a worker would: asked to stop, and cancelled where it awaits something."""
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
            if answer.verdict is Verdict.NEW:
                self._queues[spec.queue] = None
                self._tell_submitted(spec, answer.job)

    async def _tell_durable(self) -> None:
        hooks = self.app.hooks.durable
        feed = await self.store.events(self._cursor)
        self._cursor = feed.cursor
        for event in feed.events:
            for hook in hooks:
                if event.kind in hook.kinds:
                    self.app.hooks.call_inline(hook, event)


_Run = Callable[[Work, Context, HeldLease], Coroutine[Any, Any, Ended]]


async def _enter(around: contextlib.AsyncExitStack, manager: Any) -> Any:
    if isinstance(manager, contextlib.AbstractAsyncContextManager):
        return await around.enter_async_context(manager)
    return around.enter_context(manager)

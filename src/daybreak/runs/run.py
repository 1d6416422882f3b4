"""A handle on a run: its progress, its results as one table, and changes of all its jobs."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from datetime import timedelta
from os import PathLike
from typing import IO, Any, Final

from msgspec.structs import replace

from daybreak.api.portal import Portal, blocking, blocking_iter
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, RunBusy, RunNotFound, RunTimeout
from daybreak.core.model import UNFINISHED, WAITING, State
from daybreak.core.units import duration, moment
from daybreak.core.units import priority as parse_priority
from daybreak.runs.estimate import estimate
from daybreak.runs.notices import NoticeRights
from daybreak.runs.progress_bar import run_progress
from daybreak.runs.record import MARK_KIND, RunRecord, change_run, label_of, read_mark, read_run, run_names
from daybreak.runs.removal import forget_run, labels_of, remove_jobs
from daybreak.runs.result_rows import Row, rows_of
from daybreak.runs.run_info import Eta, RunInfo, counts_of, info_of_past, info_of_run
from daybreak.runs.tables import pandas_frame, polars_frame, write_csv, write_parquet
from daybreak.runs.watch import RunWatch, thawed
from daybreak.store.protocol import Action
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.registry import Program

Path = str | PathLike[str]
BATCH: Final = 500  # rows
SHORTEST_PAUSE: Final = timedelta(milliseconds=100)
LONGEST_PAUSE: Final = timedelta(seconds=2)


class Run:
    """The jobs of a sweep as one thing. Every blocking method has a twin with an `a` before its name (`wait`:
    `await_`).

    `epoch` is given for an earlier start of the run, before `fresh`; its results can be read, and nothing else."""

    def __init__(
        self,
        sessions: Sessions,
        program: Program,
        name: str,
        *,
        epoch: int | None = None,
        rights: Callable[[], NoticeRights] = NoticeRights,
    ) -> None:
        self.name = name
        self._sessions = sessions
        self._program = program
        self._epoch = epoch
        self._rights = rights

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<run {self.name}>" if self._epoch is None else f"<run {self.name}#{self._epoch}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (other.name, other._epoch) == (self.name, self._epoch)

    def __hash__(self) -> int:
        return hash((self.name, self._epoch))

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _record(self, client: Client) -> RunRecord:
        record, _ = await read_run(client.store, self.name)
        if record is None:
            raise RunNotFound(self.name, await run_names(client.store))
        return record

    async def _label(self, client: Client) -> str:
        if self._epoch is not None:
            return label_of(self.name, self._epoch)
        return label_of(self.name, (await self._record(client)).epoch)

    @on_store_loop
    async def ainfo(self) -> RunInfo:
        """Its figures now. The jobs are counted, also those of a run that has ended."""
        return await self._info(await self._sessions.client(), with_eta=True)

    info = blocking(ainfo)

    async def _info(self, client: Client, *, with_eta: bool) -> RunInfo:
        record = await self._record(client)
        if self._epoch is not None:
            counts, reasons = await counts_of(client, label_of(self.name, self._epoch))
            return info_of_past(self.name, self._epoch, record, counts, reasons)
        label = label_of(self.name, record.epoch)
        counts, reasons = await counts_of(client, label)
        eta = await estimate(client, self._sessions.world, record, label, counts) if with_eta else None
        return info_of_run(self.name, record, counts, reasons, eta)

    @on_store_loop
    async def aeta(self) -> Eta | None:
        """When it will probably end; None before three jobs have ended, while it is paused, and while no live worker
        can run its jobs."""
        return (await self._info(await self._sessions.client(), with_eta=True)).eta

    eta = blocking(aeta)

    async def arows(self) -> AsyncIterator[Row]:
        """A flat dict for each point, in the order of the points: arguments, fields of the result, state, error,
        ran_for and job. Also while the run goes on: what has not ended has no result yet."""
        async for batch in self._abatches():
            for row in batch:
                yield row

    def rows(self) -> Iterator[Row]:
        """A flat dict for each point, in the order of the points: arguments, fields of the result, state, error,
        ran_for and job. Also while the run goes on: what has not ended has no result yet."""
        with self._batches() as batches:
            for batch in batches:
                yield from batch

    async def _abatches(self) -> AsyncIterator[list[Row]]:
        """Rows in batches, because a hop between threads for each row would take longer than reading it."""
        source = self._read_batches()
        try:
            while (batch := await self._sessions.here(_next(source))) is not None:
                yield batch
        finally:
            await self._sessions.here(_close(source))

    _batches = blocking_iter(_abatches)

    async def _read_batches(self) -> AsyncGenerator[list[Row], None]:
        client = await self._sessions.client()
        batch: list[Row] = []
        async for row in rows_of(client, await self._label(client), self._program, self._sessions.files):
            batch.append(row)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def ato_csv(self, path: Path | IO[str]) -> int:
        """Write the rows as CSV to a path or an open text file. Returns how many there are."""
        return await asyncio.to_thread(lambda: write_csv(self.rows(), path))

    to_csv = blocking(ato_csv)

    async def ato_parquet(self, path: Path) -> int:
        """Write the rows as a Parquet file; needs pyarrow. Returns how many there are."""
        return await asyncio.to_thread(lambda: write_parquet(self.rows(), path))

    to_parquet = blocking(ato_parquet)

    async def ato_pandas(self) -> Any:
        """The rows as a data frame of pandas, which must be installed."""
        return await asyncio.to_thread(lambda: pandas_frame(self.rows()))

    to_pandas = blocking(ato_pandas)

    async def ato_polars(self) -> Any:
        """The rows as a data frame of polars, which must be installed."""
        return await asyncio.to_thread(lambda: polars_frame(self.rows()))

    to_polars = blocking(ato_polars)

    # -- waiting -------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def await_(self, timeout: object = None, *, progress: bool = False) -> RunInfo:  # noqa: ASYNC109
        """The figures of the run once every job has ended, or once the run pauses; then `state` says which it is.
        RunTimeout when `timeout` has passed; the run goes on. With `progress`, a terminal shows a bar."""
        refuse_during_import("wait")
        limit = None if timeout is None else duration(timeout, "timeout")
        client = await self._sessions.client()
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit.total_seconds()
        with run_progress(self.name, shown=progress) as bar:
            pause = SHORTEST_PAUSE.total_seconds()
            while True:
                asked_at = loop.time()
                info = await self._info(client, with_eta=bar.wants_eta(asked_at))
                bar.show(info)
                if info.is_over:
                    await self._conclude(client)
                    return await self._info(client, with_eta=False)
                if info.state == "paused":
                    return info
                # A look at a large run takes time: look so seldom that it costs little.
                pause = min(max(pause * 1.5, 20 * (loop.time() - asked_at)), LONGEST_PAUSE.total_seconds())
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    assert limit is not None
                    raise RunTimeout(self.name, info.unfinished, limit)
                delay = pause if left is None else min(pause, left)
                await self._sessions.world.sleep(timedelta(seconds=delay))

    _wait = blocking(await_)

    def wait(self, timeout: object = None, *, progress: bool = False) -> RunInfo:
        """The figures of the run once every job has ended, or once the run pauses; then `state` says which it is.
        RunTimeout when `timeout` has passed; the run goes on. With `progress`, a terminal shows a bar. Ctrl-C ends the
        wait and changes nothing."""
        try:
            return self._wait(timeout, progress=progress)
        except KeyboardInterrupt:
            print(  # noqa: T201 - for the person who waits
                f"daybreak: stopped waiting; run {self.name!r} is kept, with all its jobs and results. "
                f"To come back: daybreak runs wait {shlex.quote(self.name)}",
                file=sys.stderr,
            )
            raise

    async def _conclude(self, client: Client) -> None:
        """Record the figures and send the notice, as the watch of a worker would a moment later."""
        if self._epoch is not None:
            return
        marks = await client.store.records(MARK_KIND, self.name)
        if marks:
            watch = RunWatch(client, self._sessions.world, self._rights())
            await watch.look_at(self.name, replace(read_mark(marks[0]), done=-1))

    # -- changing ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def acancel(self, note: str = "") -> int:
        """Cancel every unfinished job: waiting ones at once, running ones are asked to stop. Returns how many."""
        client = await self._sessions.client()
        await self._change(client, lambda run: replace(thawed(run), cancelled=True, paused="", suspending=False))
        return await self._amend(client, "cancel", UNFINISHED, note)

    cancel = blocking(acancel)

    @on_store_loop
    async def asuspend(self, note: str = "") -> int:
        """Suspend the waiting jobs, so that none starts; running ones go on to their end. Returns how many."""
        client = await self._sessions.client()
        why, at = note or f"suspended by {client.by}", moment(client.wall())
        # A worker's watch finishes this if it is killed in between.
        await self._change(client, lambda run: replace(run, paused=why, paused_at=at, suspending=True))
        suspended = await self._amend(client, "suspend", WAITING - {State.SUSPENDED}, note)
        await self._change(client, lambda run: replace(run, suspending=False))
        return suspended

    suspend = blocking(asuspend)

    @on_store_loop
    async def aresume(self) -> int:
        """Let suspended jobs wait for a worker again. Failures so far do not make the run pause again. Returns how
        many."""
        client = await self._sessions.client()
        failed = (await client.count(run=await self._label(client)))[State.FAILED]
        await self._change(
            client, lambda run: replace(run, paused="", paused_at=None, suspending=False, forgiven=failed)
        )
        return await self._amend(client, "resume", frozenset({State.SUSPENDED}))

    resume = blocking(aresume)

    @on_store_loop
    async def areprioritise(self, priority: object) -> int:
        """Change the priority of the jobs that wait. Returns how many."""
        client = await self._sessions.client()
        level = parse_priority(priority)
        await self._change(client, lambda run: replace(run, priority=level))
        return await self._amend(client, "rerank", WAITING, to=level)

    reprioritise = blocking(areprioritise)

    @on_store_loop
    async def aretry(self, state: str = "failed") -> int:
        """Run the jobs that failed again, with all their attempts; with `state="cancelled"` those that were cancelled.
        Returns how many."""
        if state not in ("failed", "cancelled"):
            raise BadInput(f"retry(state={state!r}): write 'failed' or 'cancelled'")
        client = await self._sessions.client()
        # The record first: a run that has ended must be watched again before any of its jobs runs. And once more, in
        # case that a watch counted in between.
        await self._change(client, lambda run: replace(thawed(run), cancelled=False, forgiven=0))
        retried = await self._amend(client, "retry", frozenset({State(state)}))
        await self._change(client, lambda run: run if run.figures is None else thawed(run))
        return retried

    retry = blocking(aretry)

    async def _change(self, client: Client, change: Callable[[RunRecord], RunRecord]) -> None:
        if self._epoch is not None:
            raise BadInput(f"run {self.name!r}: epoch {self._epoch} is over; only its results can be read")
        await change_run(client.store, self.name, change)

    async def _amend(
        self, client: Client, action: Action, states: frozenset[State], note: str = "", *, to: object = None
    ) -> int:
        return await client.amend_all(action, run=await self._label(client), state=states, note=note, to=to)

    @on_store_loop
    async def adelete(self, *, force: bool = False) -> int:
        """Remove the run, its jobs and their results, in all epochs. A run with unfinished jobs is refused; with
        `force` they are cancelled first, and those that run are removed by a worker once they have stopped. Returns how
        many jobs were removed. If it is killed, call it again."""
        client = await self._sessions.client()
        record = await self._record(client)
        counts = [await client.count(run=label) for label in labels_of(self.name, record)]
        running = sum(count[State.RUNNING] for count in counts)
        waiting = sum(count[state] for count in counts for state in WAITING)
        if (running or waiting) and not force and not record.deleting:
            raise RunBusy(self.name, running, waiting)
        await self._change(client, lambda run: replace(run, deleting=True))
        removed = await remove_jobs(client, self.name, record)
        await forget_run(client, self.name, record)
        return removed

    delete = blocking(adelete)


async def _next(source: AsyncGenerator[list[Row], None]) -> list[Row] | None:
    return await anext(source, None)


async def _close(source: AsyncGenerator[list[Row], None]) -> None:
    await source.aclose()

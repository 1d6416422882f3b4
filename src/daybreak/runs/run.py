"""A handle on a run: its progress, its results as one table, and changes of all its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from datetime import timedelta
from os import PathLike
from typing import IO, Any, Final

from msgspec.structs import replace

from daybreak.api.portal import Portal, blocking, blocking_iter
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, RunBusy, RunNotFound, RunTimeout
from daybreak.core.model import FINAL, UNFINISHED, WAITING, Put, State
from daybreak.core.units import duration, moment
from daybreak.core.units import priority as parse_priority
from daybreak.runs.record import (
    KIND,
    MARK_KIND,
    RunRecord,
    change_run,
    label_of,
    read_run,
    run_names,
)
from daybreak.runs.result_rows import Row, rows_of
from daybreak.runs.run_info import RunInfo, counts_of, info_of_run
from daybreak.runs.tables import pandas_frame, polars_frame, write_csv, write_parquet
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
        command: Callable[[], str] | None = None,
    ) -> None:
        self.name = name
        self._sessions = sessions
        self._program = program
        self._epoch = epoch
        self._command = command

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<run {self.name}>"

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
        client = await self._sessions.client()
        record = await self._record(client)
        counts, reasons = await counts_of(client, label_of(self.name, record.epoch))
        return info_of_run(self.name, record, counts, reasons)

    info = blocking(ainfo)

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
    async def await_(self, timeout: object = None, *, progress: bool = False) -> RunInfo:  # noqa: ASYNC109, ARG002
        """The figures of the run once every point has ended, or once the run pauses. RunTimeout when `timeout` has
        passed; the run goes on."""
        refuse_during_import("wait")
        limit = None if timeout is None else duration(timeout, "timeout")
        client = await self._sessions.client()
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit.total_seconds()
        pause = SHORTEST_PAUSE.total_seconds()
        while True:
            asked_at = loop.time()
            info = await self.ainfo()
            if info.is_over or info.state == "paused":
                return info
            # A look at a large run takes time: look so seldom that it costs little.
            pause = min(max(pause * 1.5, 20 * (loop.time() - asked_at)), LONGEST_PAUSE.total_seconds())
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                assert limit is not None
                raise RunTimeout(self.name, info.unfinished, limit)
            await client._world.sleep(timedelta(seconds=pause if left is None else min(pause, left)))  # noqa: SLF001

    wait = blocking(await_)

    # -- changing ------------------------------------------------------------------------------------------------------

    @on_store_loop
    async def acancel(self, note: str = "") -> int:
        """Cancel every unfinished job: waiting ones at once, running ones are asked to stop. Returns how many."""
        client = await self._sessions.client()
        await change_run(client.store, self.name, lambda run: replace(run, cancelled=True, paused="", figures=None))
        return await self._amend(client, "cancel", UNFINISHED, note)

    cancel = blocking(acancel)

    @on_store_loop
    async def asuspend(self, note: str = "") -> int:
        """Suspend the waiting jobs, so that none starts; running ones go on to their end. Returns how many."""
        client = await self._sessions.client()
        why, at = note or f"suspended by {client.by}", moment(client.wall())
        await change_run(client.store, self.name, lambda run: replace(run, paused=why, paused_at=at))
        return await self._amend(client, "suspend", WAITING - {State.SUSPENDED}, note)

    suspend = blocking(asuspend)

    @on_store_loop
    async def aresume(self) -> int:
        """Let suspended jobs wait for a worker again. Returns how many."""
        client = await self._sessions.client()
        await change_run(client.store, self.name, lambda run: replace(run, paused="", paused_at=None))
        return await self._amend(client, "resume", frozenset({State.SUSPENDED}))

    resume = blocking(aresume)

    @on_store_loop
    async def areprioritise(self, priority: object) -> int:
        """Change the priority of the jobs that wait. Returns how many."""
        client = await self._sessions.client()
        level = parse_priority(priority)
        await change_run(client.store, self.name, lambda run: replace(run, priority=level))
        return await self._amend(client, "rerank", WAITING, to=level)

    reprioritise = blocking(areprioritise)

    @on_store_loop
    async def aretry(self, state: str = "failed") -> int:
        """Run the jobs that failed again, with all their attempts; with `state="cancelled"` those that were cancelled.
        Returns how many."""
        if state not in ("failed", "cancelled"):
            raise BadInput(f"retry(state={state!r}): write 'failed' or 'cancelled'")
        client = await self._sessions.client()
        # The record first: a run that has ended must be watched again before any of its jobs runs.
        await change_run(
            client.store, self.name, lambda run: replace(run, cancelled=False, paused="", paused_at=None, figures=None)
        )
        return await self._amend(client, "retry", frozenset({State(state)}))

    retry = blocking(aretry)

    async def _amend(
        self, client: Client, action: Action, states: frozenset[State], note: str = "", *, to: object = None
    ) -> int:
        if self._epoch is not None:
            raise BadInput(f"run {self.name!r}: epoch {self._epoch} is over; only its results can be read")
        return await client.amend_all(action, run=await self._label(client), state=states, note=note, to=to)

    @on_store_loop
    async def adelete(self, *, force: bool = False) -> int:
        """Remove the run, its jobs and their results, in all epochs. A run with unfinished jobs is refused; with
        `force` they are cancelled first. Returns how many jobs were removed. If it is killed, call it again."""
        client = await self._sessions.client()
        record = await self._record(client)
        labels = [label_of(self.name, epoch) for epoch in range(1, record.epoch + 1)]
        counts = [await client.count(run=label) for label in labels]
        running = sum(count[State.RUNNING] for count in counts)
        waiting = sum(count[state] for count in counts for state in WAITING)
        if (running or waiting) and not force and not record.deleting:
            raise RunBusy(self.name, running, waiting)
        await change_run(client.store, self.name, lambda run: replace(run, deleting=True))
        removed = 0
        for label in labels:
            await client.amend_all("cancel", run=label, state=UNFINISHED, note="the run was deleted")
            removed += await client.amend_all("remove", run=label, state=FINAL)
        if not running:
            await forget_run(client, self.name, labels)
        return removed

    delete = blocking(adelete)


async def forget_run(client: Client, name: str, labels: list[str]) -> bool:
    """Remove the record of a run that is being deleted, once it has no jobs any more."""
    for label in labels:
        if any((await client.count(run=label)).values()):
            return False
    record, revision = await read_run(client.store, name)
    if record is None or not record.deleting:
        return False
    removed = Put(kind=KIND, name=name, value=None, expect=revision)
    await client.store.put([removed, Put(kind=MARK_KIND, name=name, value=None)])
    return True


async def _next(source: AsyncGenerator[list[Row], None]) -> list[Row] | None:
    return await anext(source, None)


async def _close(source: AsyncGenerator[list[Row], None]) -> None:
    await source.aclose()

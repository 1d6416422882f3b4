"""Move a live store to another: every job with its history, and the settings.

A waiting job is suspended where it was, adopted where it goes, and dropped where it was if nothing has happened to it
since. So at no instant can both stores start it. A mover that is killed between two of these steps leaves
a suspended job behind, and the next mover goes on from there: adopting twice changes nothing. Running jobs are
left to end and move then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from daybreak.events import Event
from daybreak.model import FINAL, Job, Put, State
from daybreak.store import Amend, Filter, Moved, Purge, Query, Store, Verdict
from daybreak.world import World

CHUNK: Final = 200
MARK: Final = "moving to another store"
LOOK_AGAIN: Final = timedelta(seconds=1)
KINDS: Final = ("queue",)  # records that are settings; others speak of the old place


@dataclass
class Report:
    """`held_back` says why jobs stayed, by their ids."""

    moved: int = 0
    known: int = 0
    settings: int = 0
    running: int = 0
    held_back: dict[str, str] = field(default_factory=dict)


class Mover:
    def __init__(
        self,
        source: Store,
        target: Store,
        world: World,
        *,
        by: str,
        queue: str | None = None,
        tell: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._world = world
        self._by = by
        self._queue = queue
        self._tell = tell
        self.report = Report()

    async def run(self, *, wait: bool = True) -> Report:
        """Until nothing is left to move; with `wait`, running jobs included."""
        await self._move_settings()
        while True:
            before = self.report.moved + self.report.known
            await self._hold()
            for states in (frozenset({State.SUSPENDED}), FINAL):
                await self._move(states)
            self.report.running = await self._count(frozenset({State.RUNNING}))
            self._tell(self.report)
            if self.report.moved + self.report.known > before:
                continue
            if not wait or not self.report.running:
                return self.report
            await self._world.sleep(LOOK_AGAIN)

    async def _move_settings(self) -> None:
        """What the target says already stays as it is there."""
        for kind in KINDS:
            puts = [
                Put(kind=kind, name=record.name, value=record.value, expect=0)
                for record in await self._source.records(kind)
                if self._queue in (None, record.name)
            ]
            self.report.settings += sum(answer is not None for answer in await self._target.put(puts)) if puts else 0

    async def _hold(self) -> None:
        """Let nothing start at the source that could start at the target."""
        wanted = Amend(
            action="suspend",
            by=self._by,
            note=MARK,
            filter=Filter(states=frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED}), queue=self._queue),
        )
        while (cursor := (await self._source.amend(wanted)).cursor) is not None:
            wanted = replace(wanted, cursor=cursor)

    async def _move(self, states: frozenset[State]) -> None:
        cursor = None
        while True:
            where = Filter(states=states, queue=self._queue)
            page = await self._source.find(Query(filter=where, limit=CHUNK, cursor=cursor))
            await self._move_chunk([job for job in page.jobs if job.id not in self.report.held_back])
            if (cursor := page.cursor) is None:
                return

    async def _move_chunk(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        histories = await asyncio.gather(*(self._source.history(job.id) for job in jobs))
        moved = [Moved(_as_it_was(job, history), history) for job, history in zip(jobs, histories, strict=True)]
        # What happened between the two looks shows in the numbers: such a job waits for the next round.
        moved = [one for one in moved if one.history and one.history[-1].n == one.job.revision]
        answers = await self._target.adopt(moved, by=self._by)
        there = []
        for one, answer in zip(moved, answers, strict=True):
            if answer.verdict in (Verdict.NEW, Verdict.DUPLICATE):
                there.append((one.job.id, one.job.revision, answer.verdict))
            else:
                await self._leave(one, answer.same, answer.job)
        dropped = await self._source.purge(Purge(moved=tuple((job, revision) for job, revision, _ in there)))
        for (_, _, verdict), gone in zip(there, dropped.moved, strict=True):
            if gone:
                self.report.moved += verdict is Verdict.NEW
                self.report.known += verdict is Verdict.DUPLICATE
        self._tell(self.report)

    async def _leave(self, moved: Moved, same: str, other: str) -> None:
        """It cannot go: let it be as it was."""
        job = moved.job
        what = f"its key {job.spec.key!r}" if same == "key" else f"its unique name {job.spec.unique!r}"
        self.report.held_back[job.id] = f"{what} stands for job {other} at the target"
        if moved.history[-1].note == MARK:
            await self._source.amend(Amend(action="resume", by=self._by, jobs=(job.id,)))

    async def _count(self, states: frozenset[State]) -> int:
        return sum(tally.n for tally in await self._source.count(Filter(states=states, queue=self._queue)))


def _as_it_was(job: Job, history: Sequence[Event]) -> Job:
    """A job that was only held for the move is what it was before; a time it waits for goes along."""
    if job.state is not State.SUSPENDED:
        return job
    state, run_at = _before(history)
    if history and history[-1].note == MARK:
        return replace(job, state=state, run_at=run_at, note="")
    return replace(job, run_at=run_at)


def _before(history: Sequence[Event]) -> tuple[State, datetime | None]:
    """What a suspended job was, and until when it waited then."""
    for event in reversed(history):
        if event.state is not None and event.state is not State.SUSPENDED:
            return event.state, event.run_at if event.state is State.SCHEDULED else None
    return State.QUEUED, None

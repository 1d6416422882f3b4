"""Move a live store to another: every job with its history, and the settings.

A waiting job is suspended where it was, adopted where it goes, and dropped where it was if nothing has happened to it
since. So at no instant can both stores start it. A mover that is killed between two of these steps leaves
a suspended job behind, and the next mover goes on from there: adopting twice changes nothing. Running jobs are
left to end and move then. What the target cannot take is resumed in the same round, so that it is never held for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from daybreak.core.errors import BadInput
from daybreak.core.model import FINAL, Job, Put, State
from daybreak.store.protocol import Amend, Filter, Inserted, Moved, Purge, Query, Store, Verdict
from daybreak.system import patience
from daybreak.system.ports import Ids, World

CHUNK: Final = 200
MARK: Final = "moving to another store"
SIGN: Final = "moving"  # the kind of the record by which a mover sees that two stores are one
LOOK_AGAIN: Final = timedelta(seconds=1)
STARTABLE: Final = frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED})
# Records that are settings; others speak of the old place. Limits of resources go before the first job that needs one.
# Tokens go along, so that callers of a server need no new ones. Sessions, sign-in codes, answers under idempotency keys
# and the audit stay: they belong to the server of the old store. Trends (kinds that begin with `trend`) stay too: they
# say what happened in the old store.
KINDS: Final = ("queue", "resource", "declared resource", "token")


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
        self._left: dict[str, int] = {}  # what could not go, by the revision at which it was asked
        self._undropped = False
        self.report = Report()

    async def run(self, *, wait: bool = True) -> Report:
        """Until nothing is left to move; with `wait`, running jobs included. What cannot go is then as it was."""
        patience.unbound()
        await self._refuse_one_store()
        await self._move_settings()
        while True:
            before, self._undropped = self.report.moved + self.report.known, False
            if await self._someone_waits():
                await self._hold()
            for states in (frozenset({State.SUSPENDED}), FINAL):
                await self._move(states)
            self.report.running = await self._count(frozenset({State.RUNNING}))
            self._tell(self.report)
            if self.report.moved + self.report.known > before:
                continue
            if not self._undropped and not (wait and (self.report.running or await self._someone_waits())):
                return self.report
            await self._world.sleep(LOOK_AGAIN)

    async def _refuse_one_store(self) -> None:
        """One store may have many names, and what it adopts of itself it would drop: what is written here must not be
        found there."""
        sign = Put(kind=SIGN, name=Ids(self._world)(), value=b"")
        await self._source.put([sign])
        try:
            found = await self._target.records(SIGN, sign.name)
        finally:
            await self._source.put([replace(sign, value=None)])
        if found:
            raise BadInput("the jobs are in that very store, by another name: name another one")

    async def _move_settings(self) -> None:
        """What the target says already stays as it is there."""
        for kind in KINDS:
            puts = [
                Put(kind=kind, name=record.name, value=record.value, expect=0)
                for record in await self._source.records(kind)
                if kind != "queue" or self._queue in (None, record.name)
            ]
            self.report.settings += sum(answer is not None for answer in await self._target.put(puts)) if puts else 0

    # -- hold ----------------------------------------------------------------------------------------------------------

    async def _someone_waits(self) -> bool:
        """Besides those that cannot go: to hold them again would only fill their histories."""
        waiting, left = await self._count(STARTABLE), list(self.report.held_back)
        for at in range(0, len(left) if waiting else 0, CHUNK):
            found = await self._source.get(left[at : at + CHUNK])
            waiting -= sum(job is not None and job.state in STARTABLE for job in found)
        return waiting > 0

    async def _hold(self) -> None:
        """Let nothing start at the source that could start at the target. By filter: a job that is named would be asked
        to stop if it has just been started."""
        meant = Filter(states=STARTABLE, queue=self._queue)
        wanted = Amend(action="suspend", by=self._by, note=MARK, filter=meant)
        while (cursor := (await self._source.amend(wanted)).cursor) is not None:
            wanted = replace(wanted, cursor=cursor)

    async def _count(self, states: frozenset[State]) -> int:
        return sum(tally.n for tally in await self._source.count(Filter(states=states, queue=self._queue)))

    # -- move ----------------------------------------------------------------------------------------------------------

    async def _move(self, states: frozenset[State]) -> None:
        jobs: list[str] = []
        wanted = Query(filter=Filter(states=states, queue=self._queue), limit=CHUNK)
        while True:
            page = await self._source.find(wanted)
            jobs += [job.id for job in page.jobs if self._left.get(job.id) != job.revision]
            if page.cursor is None:
                break
            wanted = replace(wanted, cursor=page.cursor)
        jobs.reverse()  # found newest first: over there they stand in the order of their arrival
        for at in range(0, len(jobs), CHUNK):
            await self._move_chunk(jobs[at : at + CHUNK], states)

    async def _move_chunk(self, jobs: Sequence[str], states: frozenset[State]) -> None:
        # One that was resumed since it was found may start here: it waits for the next round.
        packed = [one for one in await self._source.pack(jobs) if one is not None and one.job.state in states]
        there = []
        for one, answer in zip(packed, await self._adopt([_as_it_was(one) for one in packed]), strict=True):
            if isinstance(answer, Inserted) and answer.verdict in (Verdict.NEW, Verdict.DUPLICATE):
                there.append((one.job.id, one.job.revision, answer.verdict))
            else:
                await self._leave(one, answer)
        if not there:
            return
        dropped = await self._source.purge(Purge(moved=tuple((job, revision) for job, revision, _ in there)))
        for (job, _, verdict), gone in zip(there, dropped.moved, strict=True):
            self.report.held_back.pop(job, None)
            self.report.moved += gone and verdict is Verdict.NEW
            self.report.known += gone and verdict is Verdict.DUPLICATE
            self._undropped |= not gone  # something has happened to it: asked again, it is known there
        self._tell(self.report)

    async def _adopt(self, moved: Sequence[Moved]) -> list[Inserted | str]:
        """What became of each at the target; in words, why it cannot be kept there."""
        if not moved:
            return []
        try:
            return [*await self._target.adopt(moved, by=self._by)]
        except BadInput as error:
            if len(moved) == 1:
                return [f"the target cannot keep it: {error}"]
        half = len(moved) // 2  # nothing of them was written: one does not stop the others
        return [*await self._adopt(moved[:half]), *await self._adopt(moved[half:])]

    async def _leave(self, packed: Moved, answer: Inserted | str) -> None:
        """It cannot go: let it be as it was."""
        job = packed.job
        self.report.held_back[job.id] = answer if isinstance(answer, str) else _in_the_way(packed, answer)
        self._left[job.id] = job.revision
        if _is_held(job):
            await self._source.amend(Amend(action="resume", by=self._by, jobs=(job.id,)))


def _is_held(job: Job) -> bool:
    """By a mover, for the move alone. Its note says so whatever else was told of it since."""
    return job.state is State.SUSPENDED and job.note == MARK


def _as_it_was(packed: Moved) -> Moved:
    """A job that was only held for the move is what a resumption would make of it."""
    job = packed.job
    if not _is_held(job):
        return packed
    state = State.QUEUED if job.run_at is None else State.SCHEDULED
    return replace(packed, job=replace(job, state=state, note=""))


def _in_the_way(packed: Moved, answer: Inserted) -> str:
    spec = packed.job.spec
    keys = sorted({*packed.keys, *(() if spec.key is None else (spec.key,))})
    what = f"its unique name {spec.unique!r}"
    if answer.same == "key":
        what = ("its key " if len(keys) == 1 else "one of its keys ") + ", ".join(map(repr, keys))
    return f"{what} stands for job {answer.job} at the target"

"""Move a live store to another: every job with its history, and the settings.

A waiting job is suspended in the source, adopted by the target, and then deleted from the source unless it has changed
meanwhile. So the two stores can never both start it. A mover that is killed between two of these steps leaves a
suspended job behind, and the next mover continues from there: adopting twice changes nothing. Running jobs are moved
when they have ended. A job that the target refuses is resumed in the same round, so it is never held for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.client.cache_seal import KIND as SEAL_KIND
from daybreak.client.job_logs import copy_logs, delete_logs
from daybreak.client.saga_migration import hold_sagas, move_sagas
from daybreak.client.schedule_migration import move_schedules
from daybreak.core.errors import BadInput, StoreCorrupt
from daybreak.core.model import FINAL, Job, Put, State
from daybreak.files import FileStore
from daybreak.files.contents_copy import copy_contents
from daybreak.store.protocol import Amend, Filter, Inserted, Moved, Purge, Query, Store, Verdict
from daybreak.system import patience
from daybreak.system.ports import Ids, World
from daybreak.values.file import digests_in

CHUNK: Final = 200
HOLD_NOTE: Final = "moving to another store"
PROBE_KIND: Final = "moving"  # the kind of the record that shows whether source and target are the same store
POLL_INTERVAL: Final = timedelta(seconds=1)
STARTABLE: Final = frozenset({State.QUEUED, State.SCHEDULED, State.BLOCKED})
# The records to move: settings, pauses of watched folders, and tokens, so that callers of a server need no new ones.
# Schedules are moved by `schedule_migration`, sagas with their marks by `saga_migration`.
# Limits of resources are moved before the first job that needs them. All
# other records describe the old store and stay: sessions, sign-in codes, answers under idempotency keys and the audit
# of its server, its trends (kinds that begin with `trend`), and contents of files (`files`, and kinds that begin with
# `blob`), which are copied with the jobs that refer to them.
# The logs of jobs (kinds that begin with `log`) go with their jobs. Requests to workers and the stacks that they answer
# (`request`, `stack`) are of this minute. The name of a ledger on message queues (`sqs`) is of this store, and the
# records of which delivery of a job counts (`delivery`) go with the end of the job: while it runs, it is not moved. The
# cursors of durable hooks, bridges and sagas (`hook`, `bridge`, `follower`) are places in the feed of this store.
# With its seal, keys of cached results that cover a secret stay the same.
KINDS: Final = ("queue", "resource", "declared resource", "token", "watch", SEAL_KIND)
RUN_KINDS: Final = ("run", "active run")  # a run and its mark: they go with the jobs of the run


@dataclass
class Report:
    """The progress of a move. `held_back` says for each job that stayed why, by its id; `schedules_held_back` for
    each schedule, by its name."""

    moved: int = 0
    known: int = 0
    settings: int = 0
    running: int = 0
    held_back: dict[str, str] = field(default_factory=dict)
    schedules: int = 0
    sagas: int = 0
    schedules_held_back: dict[str, str] = field(default_factory=dict)


class _Run(Struct, frozen=True):
    """What a move needs to know of a run (`runs/record.py`)."""

    queue: str = "default"
    epoch: int = 1


class Mover:
    """Moves the jobs and settings of `source` to `target`. `on_progress` is called after each chunk. `files` are the
    contents of both: those that a job refers to are copied before it is adopted, and stay in the source until its
    janitor deletes them."""

    def __init__(
        self,
        source: Store,
        target: Store,
        world: World,
        *,
        by: str,
        queue: str | None = None,
        on_progress: Callable[[Report], None] = lambda _: None,
        files: tuple[FileStore, FileStore] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._world = world
        self._by = by
        self._queue = queue
        self._on_progress = on_progress
        self._files = files
        self._refused_at: dict[str, int] = {}  # the jobs that the target refused, with their revision then
        self._undropped = False
        self.report = Report()

    async def run(self, *, wait: bool = True) -> Report:
        """Move until nothing is left; with `wait`, running jobs too. Jobs that the target refuses stay unchanged."""
        patience.unbound()
        await self._refuse_same_store()
        await hold_sagas(self._source, queue=self._queue)
        await self._move_settings()
        while True:
            before, self._undropped = self.report.moved + self.report.known, False
            if await self._has_waiting():
                await self._suspend_waiting()
            for states in (frozenset({State.SUSPENDED}), FINAL):
                await self._move(states)
            self.report.running = await self._count(frozenset({State.RUNNING}))
            self._on_progress(self.report)
            if self.report.moved + self.report.known > before:
                continue
            if not self._undropped and not (wait and (self.report.running or await self._has_waiting())):
                await self._drop_moved_runs()
                if self._queue is None:
                    self.report.sagas += await move_sagas(self._source, self._target)
                return self.report
            await self._world.sleep(POLL_INTERVAL)

    async def _refuse_same_store(self) -> None:
        """Refuse a target that is the source under another name, because jobs would be deleted after they were adopted.
        A record that is written to the source must not be found in the target."""
        probe = Put(kind=PROBE_KIND, name=Ids(self._world)(), value=b"")
        await self._source.put([probe])
        try:
            found = await self._target.records(PROBE_KIND, probe.name)
        finally:
            await self._source.put([replace(probe, value=None)])
        if found:
            raise BadInput("source and target are the same store under two names: name another target")

    async def _move_settings(self) -> None:
        """Copy the settings. Settings that the target already has stay as they are."""
        for kind in KINDS:
            puts = [
                Put(kind=kind, name=record.name, value=record.value, expect=0)
                for record in await self._source.records(kind)
                if kind != "queue" or self._queue in (None, record.name)
            ]
            self.report.settings += sum(answer is not None for answer in await self._target.put(puts)) if puts else 0
        self.report.schedules, self.report.schedules_held_back = await move_schedules(
            self._source, self._target, queue=self._queue, copy_contents=self._copy_digests
        )
        await self._copy_runs()

    async def _copy_runs(self) -> None:
        """Copy the runs before their first job is moved. A run that the target already has stays as it is."""
        runs = await self._runs()
        for kind in RUN_KINDS:
            puts = [
                Put(kind=kind, name=record.name, value=record.value, expect=0)
                for record in await self._source.records(kind)
                if record.name in runs
            ]
            if puts:
                await self._target.put(puts)

    async def _drop_moved_runs(self) -> None:
        """Delete the runs of which no job is left in the source."""
        for name, (run, revision) in (await self._runs()).items():
            labels = [name, *(f"{name}#{epoch}" for epoch in range(2, run.epoch + 1))]
            counts = [await self._source.count(Filter(run=label)) for label in labels]
            if any(counts) or not await self._target.records("run", name):
                continue
            await self._source.put([
                Put(kind="run", name=name, value=None, expect=revision), Put(kind="active run", name=name, value=None),
            ])  # fmt: skip

    async def _runs(self) -> dict[str, tuple[_Run, int]]:
        """The runs that are to be moved, each with the revision of its record."""
        found = {
            record.name: (msgspec.json.decode(record.value, type=_Run), record.revision)
            for record in await self._source.records("run")
        }
        return {name: run for name, run in found.items() if self._queue in (None, run[0].queue)}

    # -- suspend -------------------------------------------------------------------------------------------------------

    async def _has_waiting(self) -> bool:
        """Whether jobs wait that the target has not refused. Suspending refused jobs again would fill their history."""
        waiting, held = await self._count(STARTABLE), list(self.report.held_back)
        for at in range(0, len(held) if waiting else 0, CHUNK):
            found = await self._source.get(held[at : at + CHUNK])
            waiting -= sum(job is not None and job.state in STARTABLE for job in found)
        return waiting > 0

    async def _suspend_waiting(self) -> None:
        """Suspend the waiting jobs of the source. By filter instead of by id: a job that is suspended by id is asked to
        stop if it has just been started."""
        startable = Filter(states=STARTABLE, queue=self._queue)
        wanted = Amend(action="suspend", by=self._by, note=HOLD_NOTE, filter=startable)
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
            jobs += [job.id for job in page.jobs if self._refused_at.get(job.id) != job.revision]
            if page.cursor is None:
                break
            wanted = replace(wanted, cursor=page.cursor)
        jobs.reverse()  # found newest first; the target must get them in the order in which they were submitted
        for at in range(0, len(jobs), CHUNK):
            await self._move_chunk(jobs[at : at + CHUNK], states)

    async def _move_chunk(self, jobs: Sequence[str], states: frozenset[State]) -> None:
        # A job that was resumed since it was found may start in the source: leave it for the next round.
        packed = [one for one in await self._source.pack(jobs) if one is not None and one.job.state in states]
        packed = [one for one in packed if await self._copy_contents(one)]
        there = []
        for one, answer in zip(packed, await self._adopt([_without_hold(one) for one in packed]), strict=True):
            if isinstance(answer, Inserted) and answer.verdict in (Verdict.NEW, Verdict.DUPLICATE):
                there.append((one.job.id, one.job.revision, answer.verdict))
            else:
                await self._keep_at_source(one, answer)
        if not there:
            return
        # After the job, because the janitor of the target deletes logs without a job; before it is dropped here.
        ran = {one.job.id for one in packed if one.job.fence}
        for job, _, _ in there:
            if job in ran:
                await copy_logs(self._source, self._target, job)
        dropped = await self._source.purge(Purge(moved=tuple((job, revision) for job, revision, _ in there)))
        for (job, _, verdict), gone in zip(there, dropped.moved, strict=True):
            self.report.held_back.pop(job, None)
            self.report.moved += gone and verdict is Verdict.NEW
            self.report.known += gone and verdict is Verdict.DUPLICATE
            self._undropped |= not gone  # it has changed since; the next round adopts it again as a duplicate
        await delete_logs(
            self._source, [job for (job, _, _), gone in zip(there, dropped.moved, strict=True) if gone and job in ran]
        )
        self._on_progress(self.report)

    async def _copy_digests(self, digests: set[str]) -> None:
        if digests and self._files is not None:
            await copy_contents(*self._files, digests)

    async def _copy_contents(self, packed: Moved) -> bool:
        """Copy what a job refers to. If that is not possible, the job stays."""
        job = packed.job
        digests = digests_in(job.spec.args, job.result, job.checkpoint)
        if not digests or self._files is None:
            return True
        try:
            await copy_contents(*self._files, digests)
        except StoreCorrupt as error:
            await self._keep_at_source(packed, str(error))
            return False
        return True

    async def _adopt(self, moved: Sequence[Moved]) -> list[Inserted | str]:
        """The target's answer for each job, or the reason why the target cannot store it."""
        if not moved:
            return []
        try:
            return [*await self._target.adopt(moved, by=self._by)]
        except BadInput as error:
            if len(moved) == 1:
                return [f"the target cannot store it: {error}"]
        half = len(moved) // 2  # nothing was written; find the job that caused the error
        return [*await self._adopt(moved[:half]), *await self._adopt(moved[half:])]

    async def _keep_at_source(self, packed: Moved, answer: Inserted | str) -> None:
        """Record why a job cannot be moved, and resume it."""
        job = packed.job
        self.report.held_back[job.id] = answer if isinstance(answer, str) else _conflict_text(packed, answer)
        self._refused_at[job.id] = job.revision
        if _is_held(job):
            await self._source.amend(Amend(action="resume", by=self._by, jobs=(job.id,)))


def _is_held(job: Job) -> bool:
    """Whether the job is suspended only because of the move; its note says so."""
    return job.state is State.SUSPENDED and job.note == HOLD_NOTE


def _without_hold(packed: Moved) -> Moved:
    """A job that was suspended only for the move, in the state that resuming it would give."""
    job = packed.job
    if not _is_held(job):
        return packed
    state = State.QUEUED if job.run_at is None else State.SCHEDULED
    return replace(packed, job=replace(job, state=state, note=""))


def _conflict_text(packed: Moved, answer: Inserted) -> str:
    spec = packed.job.spec
    keys = sorted({*packed.keys, *(() if spec.key is None else (spec.key,))})
    what = f"its unique name {spec.unique!r}"
    if answer.same == "key":
        what = ("its key " if len(keys) == 1 else "one of its keys ") + ", ".join(map(repr, keys))
    return f"{what} belongs to job {answer.job} in the target"

"""`app.sweep`: writes the record of the run first, then a job for each point.

Every step can be repeated, so a submission that was killed is continued by the same call (docs/decisions/0028-runs.md):

1. all points are encoded once, without writing anything: so a bad point is refused before the first job exists
2. the record is written by compare-and-set
3. the points are inserted in chunks, in order, each job under the key of its point
4. the record says that all points are submitted"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.errors import BadInput, KeyConflict, KeySpent, QueueFull, RecordChanged, RunChanged
from daybreak.core.model import UNFINISHED, JobSpec, State
from daybreak.core.units import counted, moment
from daybreak.policy.admit import check_size
from daybreak.runs.changes import MAX_COLUMNS, Seen, code_differs, describe, describe_counts, shown
from daybreak.runs.points import Point, PointKeys, PointSet
from daybreak.runs.record import (
    CAS_ATTEMPTS,
    PAST_LIMIT,
    PastEpoch,
    RunRecord,
    Summary,
    change_run,
    label_of,
    read_run,
    write_run,
)
from daybreak.store.protocol import Amend, Verdict
from daybreak.tasks.cache import REFRESH
from daybreak.values.file import MARK, NotStored, collecting

if TYPE_CHECKING:
    from daybreak.api.task import Task
    from daybreak.client.client import Client
    from daybreak.runs.designs import Design

CHUNK: Final = 1000
ORPHAN_NOTE: Final = "no longer in the sweep"
POINT_META: Final = "point"  # the entry of a job's meta that has the number of its point
# The run itself decides these.
_OWN_OPTIONS: Final = {
    "key": "a run gives every point its own key",
    "id": "a run gives every job its own id",
    "run": "a sweep is named by name=",
    "unique": "the points of a run are separate jobs",
    "unique_while": "the points of a run are separate jobs",
    "on_conflict": "the points of a run are separate jobs",
    "tx": "a sweep is submitted in transactions of its own",
    "keep": "the jobs of a run are kept until the run is deleted",
}


class SweepPlan(Struct, frozen=True, kw_only=True):
    """What `app.sweep` would do. Of the `total` points, `done` have completed and `to_run` have yet to run, of which
    `waiting` and `running` have a job; `failed` and `cancelled` ended otherwise, and are not run again by themselves.

    `changes` is what differs from the run as it was submitted before; `orphaned` are jobs of points that are no longer
    in the sweep. If `is_refused`, `app.sweep` needs `accept_changes` or `fresh`."""

    total: int
    done: int = 0
    to_run: int = 0
    new: int = 0
    waiting: int = 0
    running: int = 0
    failed: int = 0
    cancelled: int = 0
    orphaned: int = 0
    changes: tuple[str, ...] = ()
    is_refused: bool = False


class _Encoded(NamedTuple):
    row: dict[str, Any]
    args: bytes
    point: Point


class Submission:
    """One call of `app.sweep`. `task` has the options of the jobs; `client` is that of the running loop."""

    def __init__(
        self,
        client: Client,
        task: Task[..., Any],
        design: Design,
        name: str,
        *,
        options: Mapping[str, Any],
        fresh: bool = False,
        accept_changes: bool = False,
        stop_after: int | None = None,
        notify: tuple[str, ...] = (),
    ) -> None:
        for option, why in _OWN_OPTIONS.items():
            if option in options:
                raise BadInput(f"sweep() has no option {option!r}: {why}")
        self._client = client
        self._store = client.store
        self._task = task.using(**options) if options else task
        self._design = design
        self._name = name
        self._options = options
        self._fresh = fresh
        self._accept = accept_changes
        self._stop_after = stop_after
        self._notify = notify
        self._definition = task.definition
        self._distinct = self._has_distinct_points()

    # -- points --------------------------------------------------------------------------------------------------------

    def _encode(self, row: dict[str, Any], number: int) -> bytes:
        arguments = self._definition.arguments
        try:
            if self._design.from_text:
                texts = {name: row[name] for name in self._design.columns}
                row.update(arguments.from_text(texts))
            try:
                encoded = arguments.encode_named(row)
            except NotStored:
                with collecting():  # only to encode it: its contents are stored before it is inserted
                    encoded = arguments.encode_named(row)
            return check_size(self._task.name, encoded)
        except BadInput as error:
            raise type(error)(f"point {number} of the sweep: {error}") from None

    def _has_distinct_points(self) -> bool:
        """Whether a grid has no value twice, so that no two of its points are equal."""
        levels = self._design.levels
        if not levels or self._design.from_text:
            return False
        first = next(iter(self._design))
        for name, values in levels.items():
            encoded = {self._encode({**first, name: value}, 0) for value in values}
            if len(encoded) != len(values):
                return False
        return True

    def _encoded(self, epoch: int) -> Iterator[_Encoded]:
        """All points in order, each with its arguments and its key in this epoch."""
        definition = self._definition
        keys = PointKeys(self._name, epoch, definition.name, definition.version, distinct=self._distinct)
        for number, row in enumerate(self._design):
            args = self._encode(row, number)
            yield _Encoded(row, args, keys.point(args))

    def _summary(self) -> Summary:
        """Encodes every point, to check it and to know whether the set of points is the same as before. The digest is
        that of the first epoch, so that a fresh start does not change it."""
        points, seen = PointSet(), Seen(self._design.columns)
        for encoded in self._encoded(1):
            points.add(encoded.point.number)
            if not seen.is_full:
                seen.add(encoded.row)
        fixed = {name: shown(value) for name, value in list(self._design.fixed.items())[:MAX_COLUMNS]}
        return Summary(total=points.total, points=points.digest(), columns=seen.columns(), fixed=fixed)

    # -- the record ----------------------------------------------------------------------------------------------------

    async def run(self) -> RunRecord:
        """Submit what is missing. When this returns, every point has a job."""
        summary = self._summary()
        before: RunRecord | None = None
        for _ in range(CAS_ATTEMPTS):
            found, revision = await read_run(self._store, self._name)
            record = await self._next_record(found, before, summary)
            if record == found or await write_run(self._store, self._name, record, revision):
                return await self._submit(record, is_new=found is None or found.epoch != record.epoch)
            before = before or found
        raise RecordChanged("run", self._name)

    async def _next_record(self, found: RunRecord | None, before: RunRecord | None, summary: Summary) -> RunRecord:
        """The record as it is to be written; `before` is the record as this call first saw it."""
        if found is None:
            return self._new_record(summary)
        if found.deleting:
            raise BadInput(
                f"run {self._name!r} is being deleted: delete it again to finish that, or choose another name"
            )
        definition = self._definition
        changes = describe(
            found, task=definition.name, version=definition.version, code=definition.code, design=summary
        )
        if self._fresh and not self._is_this_fresh_start(found, before, changes):
            return self._fresh_record(found, summary)
        if changes and not self._accept:
            await self._refuse(found, changes, summary)
        return self._continued_record(found, summary)

    def _is_this_fresh_start(self, found: RunRecord, before: RunRecord | None, changes: list[str]) -> bool:
        """Whether the present epoch is the one that `fresh` asks for: its submission was killed, or another process
        that was started at the same time has begun it."""
        if changes:
            return False
        return (found.epoch > 1 and not found.submitted) or (before is not None and found.epoch > before.epoch)

    def _new_record(self, summary: Summary) -> RunRecord:
        definition, now = self._definition, moment(self._client.wall())
        template = self._task._make_template()  # noqa: SLF001 - what its jobs have in common
        return RunRecord(
            task=definition.name,
            version=definition.version,
            code=definition.code,
            design=summary,
            created_at=now,
            started_at=now,
            by=self._client.by,
            queue=template.queue,
            priority=template.priority,
            options={name: shown(value) for name, value in sorted(self._options.items())},
            stop_after=self._stop_after,
            notify=self._notify,
        )

    def _fresh_record(self, found: RunRecord, summary: Summary) -> RunRecord:
        past = PastEpoch(
            epoch=found.epoch, task=found.task, version=found.version, code=found.code, total=found.design.total,
            started_at=found.started_at,
        )  # fmt: skip
        return replace(
            self._new_record(summary),
            created_at=found.created_at,
            epoch=found.epoch + 1,
            past=(*found.past, past)[-PAST_LIMIT:],
        )

    def _continued_record(self, found: RunRecord, summary: Summary) -> RunRecord:
        definition = self._definition
        after = replace(found, stop_after=self._stop_after, notify=self._notify)
        if found.design.points != summary.points or found.version != definition.version:
            after = replace(
                after,
                task=definition.name,
                version=definition.version,
                design=summary,
                base=found.base + found.design.total,
                submitted=False,
                orphans=True,
                figures=None,
            )
        if code_differs(found, definition.code):
            after = replace(after, code=definition.code)
        return after

    async def _refuse(self, found: RunRecord, changes: list[str], summary: Summary) -> None:
        counts = await self._client.count(run=label_of(self._name, found.epoch))
        if found.design.points == summary.points and not any(counts[state] for state in _WITH_RESULTS):
            return  # only the code differs, and nothing has run with the older code
        kept = await self._count_known(found.epoch)
        jobs = sum(counts.values())
        raise RunChanged(self._name, [*changes, describe_counts(kept, summary.total - kept, max(jobs - kept, 0))])

    async def _count_known(self, epoch: int) -> int:
        kept = 0
        for chunk in _chunks(self._encoded(epoch)):
            known = await self._store.known_keys([encoded.point.key for encoded in chunk])
            kept += sum(one is not None for one in known)
        return kept

    # -- the jobs ------------------------------------------------------------------------------------------------------

    async def _submit(self, record: RunRecord, *, is_new: bool) -> RunRecord:
        name, label = self._name, label_of(self._name, record.epoch)
        if record.submitted and not record.orphans:
            counts = await self._client.count(run=label)
            if sum(counts.values()) >= record.design.total + record.orphaned:
                return record
        await self._cancel_past(record)
        orphaned = await self._cancel_orphans(record, label) if record.orphans else record.orphaned
        await self._insert_missing(record, label, look_first=not is_new)

        def submitted(now: RunRecord) -> RunRecord:
            if now.epoch != record.epoch or now.design.points != record.design.points:
                return now
            return replace(now, submitted=True, orphans=False, orphaned=orphaned)

        after = await change_run(self._store, name, submitted)
        if after.epoch != record.epoch:
            await self._cancel_past(after)
            raise RecordChanged("run", name)
        return after

    async def _cancel_past(self, record: RunRecord) -> None:
        """Cancel what is unfinished of earlier epochs."""
        for past in record.past:
            await self._client.amend_all(
                "cancel", run=label_of(self._name, past.epoch), state=UNFINISHED, note="the run was begun anew"
            )

    async def _insert_missing(self, record: RunRecord, label: str, *, look_first: bool) -> None:
        task = self._task.using(run=label)
        if self._fresh and task._caches is not None:  # noqa: SLF001
            task = task.using(cache=REFRESH)
        caches = task._caches  # noqa: SLF001
        around = None if caches is None else await caches.surroundings()
        template = replace(
            task._make_template(),  # noqa: SLF001
            code=self._definition.code,
        )
        files = task._sessions.files  # noqa: SLF001
        done = 0
        for chunk in _chunks(self._encoded(record.epoch)):
            numbered = list(enumerate(chunk, record.base + done))
            done += len(chunk)
            if look_first:
                known = await self._store.known_keys([encoded.point.key for encoded in chunk])
                numbered = [one for one, job in zip(numbered, known, strict=True) if job is None]
            for _, encoded in numbered:
                if MARK in encoded.args and not files.knows(encoded.args):
                    await files.aencode(partial(self._definition.arguments.encode_named, encoded.row))
            if numbered:
                specs = [self._spec(task, template, encoded, number) for number, encoded in numbered]
                if caches is not None:
                    specs = await caches.akeyed(task._sessions, specs, around)  # noqa: SLF001
                await self._insert(task, template, specs, done - len(chunk))

    def _spec(self, task: Task[..., Any], template: JobSpec, encoded: _Encoded, number: int) -> JobSpec:
        key = encoded.point
        spec = replace(
            template,
            id=task._sessions.new_id(),  # noqa: SLF001
            args=encoded.args,
            key=key.key,
            digest=key.digest,
            meta={**template.meta, POINT_META: str(number)},
        )
        return task._with_resources(spec, (), encoded.row)  # noqa: SLF001

    async def _insert(self, task: Task[..., Any], template: JobSpec, specs: list[JobSpec], before: int) -> None:
        if any(spec.options.resources for spec in specs):
            await task._aprovide(*specs)  # noqa: SLF001
        hooks = task._app.hooks  # noqa: SLF001
        # Jobs that rules have judged, or that the cache knows by a key, differ from the template in more.
        if task._app.program.rules or task._caches is not None:  # noqa: SLF001
            answers = await self._client.submit_many(specs)
        else:
            answers = await self._client.submit_like(template, specs)
        for spec, answer in zip(specs, answers, strict=True):
            if answer.is_new:
                hooks.submitted(spec, answer.job)
        await hooks.found_among(self._client, answers)
        for number, (spec, answer) in enumerate(zip(specs, answers, strict=True)):
            if answer.verdict is Verdict.FULL:
                note = (
                    f"{counted(before + number, 'point')} of {len(self._design):,} have a job; submit the same sweep "
                    "again to continue"
                )
                raise QueueFull(spec.queue, note=note, resources=[need.resource for need in spec.options.resources])
            if answer.verdict is Verdict.SPENT:
                raise KeySpent(spec.key or "", answer.job, "the job of this point was moved to another store")
            if answer.verdict is Verdict.CONFLICT:
                raise KeyConflict(spec.key or "", answer.job, "another job uses the key of this point")

    # -- changes -------------------------------------------------------------------------------------------------------

    async def _cancel_orphans(self, record: RunRecord, label: str) -> int:
        """Cancel the unfinished jobs of points that are no longer in the sweep, and wake those that came back to it.
        Returns how many jobs of the run belong to no point."""
        wanted = {encoded.point.key for encoded in self._encoded(record.epoch)}
        orphaned, cancelled, back = 0, [], []
        async for job in self._client.find_all(run=label):
            if job.spec.key not in wanted:
                orphaned += 1
                if job.state in UNFINISHED:
                    cancelled.append(job.id)
            elif job.state is State.CANCELLED and job.note == ORPHAN_NOTE:
                back.append(job.id)
        await self._amend("cancel", cancelled)
        await self._amend("retry", back)
        return orphaned

    async def _amend(self, action: Any, jobs: Sequence[str]) -> None:
        for start in range(0, len(jobs), 500):
            chunk = tuple(jobs[start : start + 500])
            await self._store.amend(Amend(action=action, by=self._client.by, jobs=chunk, note=ORPHAN_NOTE))

    # -- looking only --------------------------------------------------------------------------------------------------

    async def plan(self) -> SweepPlan:
        """What `run` would do; nothing is written."""
        summary = self._summary()
        found, _ = await read_run(self._store, self._name)
        if found is None:
            return SweepPlan(total=summary.total, to_run=summary.total, new=summary.total)
        definition = self._definition
        changes = describe(
            found, task=definition.name, version=definition.version, code=definition.code, design=summary
        )
        if self._fresh:
            return SweepPlan(total=summary.total, to_run=summary.total, new=summary.total, changes=tuple(changes))
        counts = await self._client.count(run=label_of(self._name, found.epoch))
        if found.submitted and found.design.points == summary.points and not found.orphaned:
            new = max(summary.total - sum(counts.values()), 0)
            kept = counts
        else:
            kept, new = await self._kept_counts(found.epoch)
        waiting = sum(kept[state] for state in UNFINISHED if state is not State.RUNNING)
        running = kept[State.RUNNING]
        has_results = any(counts[state] for state in _WITH_RESULTS)
        return SweepPlan(
            total=summary.total,
            done=kept[State.COMPLETED],
            to_run=new + waiting + running,
            new=new,
            waiting=waiting,
            running=running,
            failed=kept[State.FAILED],
            cancelled=kept[State.CANCELLED],
            orphaned=max(sum(counts.values()) - sum(kept.values()), 0),
            changes=tuple(changes),
            is_refused=bool(changes) and not self._accept and (has_results or found.design.points != summary.points),
        )

    async def _kept_counts(self, epoch: int) -> tuple[dict[State, int], int]:
        counts, new = dict.fromkeys(State, 0), 0
        for chunk in _chunks(self._encoded(epoch)):
            known = await self._store.known_keys([encoded.point.key for encoded in chunk])
            new += sum(one is None for one in known)
            for job in await self._store.get([one.job for one in known if one is not None]):
                if job is not None:
                    counts[job.state] += 1
        return counts, new


_WITH_RESULTS: Final = (State.COMPLETED, State.FAILED, State.RUNNING)


def _chunks(points: Iterator[_Encoded]) -> Iterator[list[_Encoded]]:
    while chunk := list(islice(points, CHUNK)):
        yield chunk

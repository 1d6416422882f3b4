"""The watch: notices that a run has ended or must pause, records its figures, and sends notices.

Every worker runs a watch. Which one looks at a run is decided by compare-and-set on the run's mark, so each run is
looked at by one worker at a time, about every two seconds while its jobs end, and up to once a minute while nothing
happens. Everything that a look decides is written by compare-and-set on the record, and can be repeated: a worker that
is killed between any two steps leaves them to the next look (docs/decisions/0028-runs.md)."""

from __future__ import annotations

import logging
import shlex
import time
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.core.errors import DaybreakError, StoreError
from daybreak.core.model import FINAL, UNFINISHED, WAITING, Job, Put, Record, State
from daybreak.core.units import counted, moment, span
from daybreak.policy.runs import Look, accuracy_of, add_look, alike, is_look_due
from daybreak.runs.estimate import estimate, latest_ended
from daybreak.runs.notices import NoticeRights, has_unsent, send_notices, with_notice
from daybreak.runs.record import (
    MARK_KIND,
    Figures,
    Mark,
    RunRecord,
    change_run,
    label_of,
    read_mark,
    read_run,
    write_run,
)
from daybreak.runs.removal import continue_deletion
from daybreak.runs.run_info import counts_of, frozen_counts, state_of
from daybreak.system.ports import Ids, World

_log = logging.getLogger("daybreak.runs")

IDLE_EVERY: Final = timedelta(seconds=5)  # while no run is active
EVERY: Final = timedelta(seconds=2)
SELDOM: Final = timedelta(minutes=1)
SHARE: Final = 20  # of the time is for other things: the count of a large run takes long
FAILURES_LOOKED_AT: Final = 500


class RunWatch:
    """Watches the active runs of one store until cancelled."""

    def __init__(self, client: Client, world: World, rights: NoticeRights | None = None) -> None:
        self._client = client
        self._store = client.store
        self._world = world
        self._rights = rights or NoticeRights()
        self._new_id = Ids(world)
        self._seen: dict[str, tuple[int, int]] = {}  # by run: the revision of its mark, and since when it has been that

    async def run(self) -> None:
        """Look until cancelled. No error stops the worker."""
        pause = EVERY
        while True:
            await self._world.sleep(pause * (0.9 + 0.2 * self._world.chance.random()))
            try:
                pause = EVERY if await self.look() else IDLE_EVERY
            except StoreError as error:
                _log.warning("runs: %s; trying again", error)
            except Exception as error:  # noqa: BLE001 - the watch never stops its worker
                _log.warning("runs: %r; trying again", error, exc_info=error)

    async def look(self) -> int:
        """Look at the active runs that nobody else has looked at lately. Returns how many runs are active."""
        marks = await self._store.records(MARK_KIND)
        now, seen = self._world.steady(), self._seen
        self._seen = {}
        for record in marks:
            before = seen.get(record.name, (-1, now))
            since = before[1] if before[0] == record.revision else now
            self._seen[record.name] = (record.revision, since)
        for record in marks:
            mark = read_mark(record)
            # With a little less than the interval, so that a single worker looks at every tick.
            if now - self._seen[record.name][1] >= 0.8 * 1e6 * mark.next_in:
                try:
                    await self._look_by_turn(record, mark)
                except StoreError:
                    raise
                except DaybreakError as error:
                    _log.warning("run %s: %s", record.name, error)
        return len(marks)

    async def _look_by_turn(self, record: Record, mark: Mark) -> None:
        """Look at a run, unless another worker begins to."""
        name = record.name
        turn = await self._put_mark(name, replace(mark, next_in=_seconds(EVERY)), record.revision)
        if turn is None:
            return
        began = time.monotonic()
        after = await self.look_at(name, mark)
        if after is None:
            await self._store.put([Put(kind=MARK_KIND, name=name, value=None, expect=turn)])
            return
        interval = min(2 * mark.next_in, _seconds(SELDOM)) if after.done == mark.done else _seconds(EVERY)
        interval = max(interval, _seconds(EVERY), SHARE * (time.monotonic() - began))
        await self._put_mark(name, replace(after, next_in=interval), turn)

    async def _put_mark(self, name: str, mark: Mark, expect: int) -> int | None:
        put = Put(kind=MARK_KIND, name=name, value=msgspec.json.encode(mark), expect=expect)
        [written] = await self._store.put([put])
        if written is None:
            return None
        self._seen[name] = (written.revision, self._world.steady())
        return written.revision

    # -- one run -------------------------------------------------------------------------------------------------------

    async def look_at(self, name: str, mark: Mark) -> Mark | None:
        """Do what is due for one run. Returns its mark as it is now; None if there is nothing left to watch."""
        run, revision = await read_run(self._store, name)
        if run is None:
            return None
        if run.deleting:
            return None if await continue_deletion(self._client, name, run) else mark
        label = label_of(name, run.epoch)
        counts, reasons = await counts_of(self._client, label)
        if run.figures is not None:
            return await self._look_at_ended(name, run, counts, mark)
        done = sum(counts[state] for state in FINAL)
        if run.submitted and done and done == sum(counts.values()) and self._is_whole(run, done, mark):
            after = await self._with_figures(run, label, counts, reasons, mark)
            if await write_run(self._store, name, after, revision):
                _log.info("run %s %s", name, after.notices[-1].text if after.notices else _end_text(after))
                await send_notices(self._client, self._world, name, after, self._rights)
            return replace(mark, done=done)
        run = await self._pause_if_needed(name, run, revision, label, counts)
        if run.suspending or (run.paused and not run.submitted):
            await self._suspend_waiting(name, run, label)
        if has_unsent(run):
            run = await send_notices(self._client, self._world, name, run, self._rights)
        return await self._with_look(run, label, counts, replace(mark, done=done))

    def _is_whole(self, run: RunRecord, done: int, mark: Mark) -> bool:
        """Whether all jobs of the run are here. A run that is being moved to this store comes job by job, and of a run
        from which jobs were removed there are fewer for ever: so it must stand still for a look. -1: somebody who
        waits has seen that."""
        return done >= run.design.total + run.orphaned or mark.done in (done, -1)

    async def _look_at_ended(self, name: str, run: RunRecord, counts: dict[State, int], mark: Mark) -> Mark | None:
        """Of a run that has ended: whether it really has, because a job may have been retried in the same instant."""
        assert run.figures is not None
        if counts != frozen_counts(run.figures):
            await change_run(self._store, name, thawed)
            return replace(mark, done=0)
        run = await send_notices(self._client, self._world, name, run, self._rights)
        return mark if has_unsent(run) else None

    async def _with_figures(
        self, run: RunRecord, label: str, counts: dict[State, int], reasons: dict[str, int], mark: Mark
    ) -> RunRecord:
        ended = [job.finished_at for job in await latest_ended(self._client, label) if job.finished_at is not None]
        finished_at = max(ended, default=moment(self._world.wall()))
        figures = Figures(
            counts={state.value: n for state, n in counts.items() if n},
            reasons=reasons,
            finished_at=finished_at,
            accuracy=accuracy_of(mark.looks, finished_at) if mark.looks else None,
        )
        after = replace(run, figures=figures, paused="", paused_at=None, suspending=False)
        state, _ = state_of(after, counts)
        return with_notice(after, state, _end_text(after), self._world, self._new_id)

    # -- pausing -------------------------------------------------------------------------------------------------------

    async def _pause_if_needed(
        self, name: str, run: RunRecord, revision: int, label: str, counts: dict[State, int]
    ) -> RunRecord:
        """Pause a run of which the first jobs all failed, and enough of them alike."""
        enough = run.stop_after
        if enough is None or run.paused or counts[State.COMPLETED] or counts[State.FAILED] - run.forgiven < enough:
            return run
        jobs = (await self._client.find(limit=FAILURES_LOOKED_AT, run=label, state=State.FAILED)).jobs
        kind = alike((kind_of(job) for job in jobs), enough + run.forgiven)
        if not kind:
            return run
        example = next(job for job in jobs if kind_of(job) == kind)
        failed = counted(counts[State.FAILED], "job")
        why = f"the first {failed} failed, with {kind}: {_message(example)}"
        after = replace(run, paused=why, paused_at=moment(self._world.wall()), suspending=True)
        after = with_notice(after, "paused", f"pauses: {why}", self._world, self._new_id)
        if not await write_run(self._store, name, after, revision):
            return run  # somebody changed it: the next look decides anew
        _log.warning("run %s pauses: %s; to go on: daybreak runs resume %s", name, why, shlex.quote(name))
        return after

    async def _suspend_waiting(self, name: str, run: RunRecord, label: str) -> None:
        waiting = WAITING - {State.SUSPENDED}
        await self._client.amend_all("suspend", run=label, state=waiting, note=run.paused[:200])
        if run.suspending:
            await change_run(self._store, name, lambda now: replace(now, suspending=False))

    # -- predictions ---------------------------------------------------------------------------------------------------

    async def _with_look(self, run: RunRecord, label: str, counts: dict[State, int], mark: Mark) -> Mark:
        now = moment(self._world.wall())
        if not is_look_due(mark.looks, now) or not any(counts[state] for state in UNFINISHED):
            return mark
        eta = await estimate(self._client, self._world, run, label, counts)
        if eta is None:
            return mark
        return replace(mark, looks=add_look(mark.looks, Look(now, eta.low, eta.high)))


def thawed(run: RunRecord) -> RunRecord:
    """The record of a run that goes on after it had ended."""
    return replace(run, figures=None, changes=run.changes + 1)


def kind_of(job: Job) -> str:
    """What kind of failure a job ended with: the class of the error, or the reason."""
    if job.failure is not None:
        return job.failure.kind
    return job.reason.value if job.reason is not None else "failed"


def _message(job: Job) -> str:
    text = "" if job.failure is None else job.failure.message
    return text.splitlines()[0][:200] if text else (job.reason or "failed")


def _end_text(run: RunRecord) -> str:
    assert run.figures is not None
    counts = run.figures.counts
    parts = [f"{counts[state]:,} {state}" for state in ("completed", "failed", "cancelled") if counts.get(state)]
    took = run.figures.finished_at - run.started_at
    return f"has ended: {', '.join(parts)}, after {timedelta(seconds=max(round(took.total_seconds()), 0))}"


def _seconds(delay: timedelta) -> float:
    return span(delay) / 1e6

"""Fires the ticks of schedules: each due tick becomes a job, once, however many tickers run.

A tick is one `put`: the record with its new `through`, if its revision is still the one that was read, and with it the
job. Of several tickers one writes it, and the others read again. A ticker that is killed leaves a tick done or not
done, never half."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from daybreak.client.schedule_record import Schedule, decode_schedule, job_of_tick
from daybreak.core.errors import BadInput
from daybreak.core.model import Put, Record
from daybreak.core.units import moment
from daybreak.policy.schedules.due_ticks import DueTicks, due_ticks, is_ahead
from daybreak.policy.schedules.timing import next_tick
from daybreak.store.protocol import SCHEDULE_KIND, SCHEDULES_TOPIC, Store, Watch
from daybreak.system.ports import Ids, World

_log = logging.getLogger("daybreak.services")

TICKS_PER_PUT: Final = 100
PUTS_PER_TICK: Final = 10  # of one schedule; the rest waits for the next round, after the other schedules
POLL_INTERVAL: Final = timedelta(seconds=15)  # in which a jump of the clock is noticed
IDLE_INTERVAL: Final = timedelta(minutes=1)  # without any schedule; a new one wakes the ticker
SHORTEST_PAUSE: Final = timedelta(milliseconds=1)
REWIND_AFTER: Final = timedelta(minutes=1)  # a clock must be wrong for so long


class ScheduleTicker:
    """A service. It sleeps until the next tick, or until a schedule is written."""

    def __init__(self, store: Store, world: World) -> None:
        self._store = store
        self._world = world
        self._new_id = Ids(world)
        self._unreadable: set[tuple[str, int]] = set()
        self._ahead_since: dict[str, int] = {}

    def _now(self) -> datetime:
        return moment(self._world.wall())

    def watch(self) -> Watch:
        return self._store.watch([SCHEDULES_TOPIC])

    async def tick(self) -> timedelta:
        """Fire what is due, and return the delay until the next tick."""
        next_due: datetime | None = None
        for record in await self._store.records(SCHEDULE_KIND):
            schedule = self._decoded(record)
            if schedule is None or schedule.is_stopped:
                continue
            due_at = await self._fire(record, schedule)
            if due_at is not None and (next_due is None or due_at < next_due):
                next_due = due_at
        if next_due is None:
            return IDLE_INTERVAL
        return min(max(next_due - self._now(), SHORTEST_PAUSE), POLL_INTERVAL)

    def _decoded(self, record: Record) -> Schedule | None:
        try:
            return decode_schedule(record)
        except (msgspec.MsgspecError, ValueError) as error:
            self._report_once(record, error)
            return None

    def _report_once(self, record: Record, error: Exception) -> None:
        if (record.name, record.revision) not in self._unreadable:
            self._unreadable.add((record.name, record.revision))
            _log.error("schedule %s cannot be run by this process: %s", record.name, error)

    async def _fire(self, record: Record, schedule: Schedule) -> datetime | None:
        """Fire the due ticks of one schedule; returns when its next tick is due."""
        try:
            for _ in range(PUTS_PER_TICK):
                now = self._now()
                if is_ahead(schedule.through, now):
                    return await self._rewind(record, schedule, now)
                self._ahead_since.pop(record.name, None)
                due = _due(schedule, now)
                if due.through is None:
                    return next_tick(schedule.declaration.timing, schedule.through)
                written = await self._write(record, schedule, due)
                if written is None:  # another ticker was first, or somebody changed the schedule: read again
                    return now
                record, schedule = written, decode_schedule(written)
        except BadInput as error:  # a time zone that this machine does not know; other machines may
            self._report_once(record, error)
            return None
        return self._now()

    async def _write(self, record: Record, schedule: Schedule, due: DueTicks) -> Record | None:
        assert due.through is not None
        done = replace(
            schedule,
            through=due.through,
            ticks=schedule.ticks + len(due.fire),
            skipped=schedule.skipped + due.skipped,
            last_tick=due.fire[-1] if due.fire else schedule.last_tick,
        )
        jobs = tuple(job_of_tick(record.name, schedule.declaration, tick, self._new_id()) for tick in due.fire)
        put = Put(
            kind=SCHEDULE_KIND, name=record.name, value=done.encoded(), expect=record.revision, inserts=jobs
        )  # fmt: skip
        [written] = await self._store.put([put])
        if written is not None and due.skipped:
            _log.warning(
                "schedule %s: skipped %d ticks that were missed (catch_up=%s)",
                record.name, due.skipped, schedule.declaration.catch_up,
            )  # fmt: skip
        return written

    async def _rewind(self, record: Record, schedule: Schedule, now: datetime) -> datetime | None:
        """A clock was far ahead when ticks were fired, or is far behind now. If that lasts, continue by the present
        time: without it, a schedule would stand still until its clock comes to where it was. Ticks whose jobs exist are
        not fired again, because their idempotency keys are known."""
        seen_at = self._ahead_since.setdefault(record.name, self._world.steady())
        if timedelta(microseconds=self._world.steady() - seen_at) < REWIND_AFTER:
            return now + REWIND_AFTER
        del self._ahead_since[record.name]
        _log.warning(
            "schedule %s: its ticks were done up to %s, which is in the future; continuing from now: a clock was wrong",
            record.name, schedule.through.isoformat(),
        )  # fmt: skip
        value = replace(schedule, through=now).encoded()
        await self._store.put([Put(kind=SCHEDULE_KIND, name=record.name, value=value, expect=record.revision)])
        return now


def _due(schedule: Schedule, now: datetime) -> DueTicks:
    declared = schedule.declaration
    return due_ticks(
        declared.timing,
        catch_up=declared.catch_up,
        grace=declared.grace,
        through=schedule.through,
        now=now,
        limit=TICKS_PER_PUT,
    )

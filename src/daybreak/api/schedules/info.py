"""A schedule at one instant: its state, its next tick, and its latest job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from daybreak.api.worker_info import known_tasks, live_workers
from daybreak.client.client import Client
from daybreak.client.schedule_changes import find_schedule
from daybreak.client.schedule_record import StoredSchedule, read_schedules, tick_key
from daybreak.core.errors import BadInput
from daybreak.core.model import RedactedStruct, State
from daybreak.core.units import moment
from daybreak.policy.schedules.due_ticks import is_ahead
from daybreak.policy.schedules.timing import Timing, next_tick
from daybreak.policy.schedules.words import PreviewedTick, preview, timing_words

ScheduleState = Literal["active", "late", "paused", "moving", "ended", "ahead", "unknown zone"]
LATE_AFTER: Final = timedelta(minutes=2)  # a due tick that no worker has fired for so long
MAX_PREVIEW: Final = 100


class ScheduleInfo(RedactedStruct, frozen=True, kw_only=True):
    """A schedule at one instant.

    active        the next tick is in the future, or is being fired
    late          a tick is due, and nobody has fired it: no worker or server runs
    paused        somebody paused it
    moving        it is being moved to another store
    ended         it has no more ticks
    ahead         its ticks are done up to a time in the future: a clock was wrong; it continues by itself
    unknown zone  this machine does not know its time zone

    `words` says when it ticks. `is_known` is False if live workers exist and none of them knows its task. `last_job` is
    the job of `last_tick`, or the one that stood in its place; None once it was removed."""

    name: str
    state: ScheduleState
    task: str
    version: int
    queue: str
    priority: int
    words: str
    cron: str | None
    every: timedelta | None
    at: tuple[datetime, ...]
    tz: str
    args: bytes
    catch_up: str
    overlap: str
    grace: timedelta
    jitter: timedelta
    next_tick: datetime | None
    last_tick: datetime | None
    last_job: str | None
    last_state: State | None
    ticks: int
    skipped: int
    through: datetime
    paused_at: datetime | None
    paused_by: str
    app: str | None
    created_at: datetime
    changed_at: datetime
    changed_by: str
    is_known: bool


async def all_schedules(client: Client) -> list[ScheduleInfo]:
    """Every schedule of the store, by name."""
    return await _infos(client, await read_schedules(client.store))


async def schedule_info(client: Client, name: str) -> ScheduleInfo:
    """One schedule; ScheduleNotFound says what comes closest."""
    [info] = await _infos(client, [await find_schedule(client, name)])
    return info


async def preview_schedule(client: Client, name: str, n: int, after: datetime | None = None) -> list[PreviewedTick]:
    """The next ticks of a schedule, as if it were not paused."""
    if not 1 <= n <= MAX_PREVIEW:
        raise BadInput(f"preview of {n} ticks: write 1 to {MAX_PREVIEW}")
    schedule = (await find_schedule(client, name)).schedule
    return preview(schedule.declaration.timing, after or moment(client.wall()), n)


def next_ticks(info: ScheduleInfo, now: datetime, n: int) -> list[PreviewedTick]:
    """The next ticks of a schedule, as if it were not paused; none if this machine does not know its zone."""
    timing = Timing(cron=info.cron or "", every=info.every, at=info.at, tz=info.tz)
    return [] if info.state == "unknown zone" else preview(timing, now, n)


async def _infos(client: Client, stored: Sequence[StoredSchedule]) -> list[ScheduleInfo]:
    if not stored:
        return []
    now = moment(client.wall())
    workers = await live_workers(client, now)
    known = known_tasks(workers)
    ticked = {one.name: one.schedule.last_tick for one in stored if one.schedule.last_tick is not None}
    keys = [tick_key(name, tick) for name, tick in ticked.items()]
    found = await client.store.known_keys(keys) if keys else []
    jobs = {name: None if key is None else key.job for name, key in zip(ticked, found, strict=True)}
    ids = [job for job in jobs.values() if job is not None]
    states = {job.id: job.state for job in (await client.store.get(ids) if ids else []) if job is not None}
    infos = []
    for one in stored:
        spec = one.schedule.declaration.spec
        is_known = not workers or (spec.task, spec.version) in known
        job = jobs.get(one.name)
        infos.append(_info(one, now, job if job in states else None, states.get(job or ""), is_known=is_known))
    return infos


def _info(
    one: StoredSchedule, now: datetime, job: str | None, job_state: State | None, *, is_known: bool
) -> ScheduleInfo:
    schedule = one.schedule
    declared, spec = schedule.declaration, schedule.declaration.spec
    state, due_at = _state(one, now)
    return ScheduleInfo(
        name=one.name,
        state=state,
        task=spec.task,
        version=spec.version,
        queue=spec.queue,
        priority=spec.priority,
        words=declared.timing.tz if state == "unknown zone" else timing_words(declared.timing),
        cron=declared.timing.cron or None,
        every=declared.timing.every,
        at=declared.timing.at,
        tz=declared.timing.tz,
        args=bytes(declared.args),
        catch_up=declared.catch_up,
        overlap=declared.overlap,
        grace=declared.grace,
        jitter=declared.jitter,
        next_tick=due_at,
        last_tick=schedule.last_tick,
        last_job=job,
        last_state=job_state,
        ticks=schedule.ticks,
        skipped=schedule.skipped,
        through=schedule.through,
        paused_at=schedule.paused_at,
        paused_by=schedule.paused_by,
        app=schedule.app,
        created_at=schedule.created_at,
        changed_at=schedule.changed_at,
        changed_by=schedule.changed_by,
        is_known=is_known,
    )


def _state(one: StoredSchedule, now: datetime) -> tuple[ScheduleState, datetime | None]:
    """The state, and when the next tick is due. A paused schedule has none."""
    schedule = one.schedule
    if schedule.paused_at is not None:
        return "paused", None
    if schedule.moving:
        return "moving", None
    try:
        due_at = next_tick(schedule.declaration.timing, schedule.through)
    except BadInput:
        return "unknown zone", None
    if due_at is None:
        return "ended", None
    if is_ahead(schedule.through, now):
        return "ahead", due_at
    return ("late" if now - due_at > LATE_AFTER else "active"), due_at

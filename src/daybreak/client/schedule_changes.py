"""Changes of schedules, each by compare-and-set: a tick that is fired at the same time is neither lost nor doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.client.schedule_record import (
    MAX_ARGS,
    MAX_NAME,
    MAX_SCHEDULES,
    Declaration,
    Schedule,
    StoredSchedule,
    job_now,
    job_of_tick,
    overlap_name,
    read_schedules,
)
from daybreak.core.errors import BadInput, RecordChanged, Refused, ScheduleNotFound, TooLarge
from daybreak.core.model import Put, ResourceSettings
from daybreak.core.units import bytes_text, moment
from daybreak.policy.admit import admit, check_name, digest
from daybreak.store.protocol import SCHEDULE_KIND

TRIES: Final = 20
Saved = Literal["created", "changed", "same"]


def check_schedule_name(name: object) -> str:
    """A name that fits into the idempotency keys of its ticks."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME:
        raise BadInput(f"schedule {name!r:.60}: its name is a text of 1 to {MAX_NAME} characters")
    check_name("schedule", name)
    return name


async def save_schedule(
    client: Client, name: str, declaration: Declaration, *, app: str = "", in_code: bool = False
) -> Saved:
    """Write a schedule, or change the one of this name. A new schedule begins with its next tick; so does one whose
    timing has changed. It stays paused if it was. `in_code` says that a worker writes what the code of `app` declares:
    it then leaves a schedule alone that the code of another app declares."""
    _check(client, name, declaration)
    for _ in range(TRIES):
        found = await read_schedules(client.store, name)
        now = moment(client.wall())
        if not found and len(await client.store.records(SCHEDULE_KIND)) >= MAX_SCHEDULES:
            raise Refused(f"schedule {name!r}: this store has {MAX_SCHEDULES:,} schedules, and takes no more")
        before = found[0] if found else None
        if before is not None and in_code and before.schedule.app not in (None, app):
            raise Refused(
                f"schedule {name!r} is declared by app {before.schedule.app!r}: give one of the two another name"
            )
        after = _changed(before, declaration, now, app=app if in_code else None, by=client.by)
        if after is None:
            return "same"
        if await _write(client, name, after, 0 if before is None else before.revision):
            return "created" if before is None else "changed"
    raise RecordChanged("schedule", name)


def _check(client: Client, name: str, declaration: Declaration) -> None:
    check_schedule_name(name)
    if len(bytes(declaration.args)) > MAX_ARGS:
        raise TooLarge(
            f"schedule {name!r}: its arguments have {bytes_text(len(bytes(declaration.args)))}, the limit is "
            f"{bytes_text(MAX_ARGS)}; "
            "pass the name of a file instead of the data"
        )
    sample = job_of_tick(name, declaration, moment(client.wall()), "sample")
    admit(sample, client.store.traits.features)


def _changed(
    before: StoredSchedule | None, declaration: Declaration, now: datetime, *, app: str | None, by: str
) -> Schedule | None:
    """The schedule after the change; None if it is the same already."""
    if before is None:
        return Schedule(
            declaration=declaration, through=now, created_at=now, changed_at=now, changed_by=by, app=app
        )  # fmt: skip
    was = before.schedule
    if was.declaration.digest() == declaration.digest():
        return None if was.app == app or app is None else replace(was, app=app)
    is_retimed = was.declaration.timing != declaration.timing
    return replace(
        was,
        declaration=declaration,
        through=now if is_retimed else was.through,
        changed_at=now,
        changed_by=by,
        app=app,
    )


async def _write(client: Client, name: str, schedule: Schedule, revision: int) -> bool:
    puts = [Put(kind=SCHEDULE_KIND, name=name, value=schedule.encoded(), expect=revision, by=client.by)]
    if schedule.declaration.overlap == "queue":  # in the same transaction, so that no job runs without its limit
        one_slot = msgspec.json.encode(ResourceSettings(slots=1))
        puts.insert(0, Put(kind="resource", name=overlap_name(name), value=one_slot, expect=0))
    return (await client.store.put(puts))[-1] is not None


# -- changes by people -------------------------------------------------------------------------------------------------


async def find_schedule(client: Client, name: str) -> StoredSchedule:
    """The schedule of this name; ScheduleNotFound says what comes closest."""
    found = await read_schedules(client.store, name)
    if not found:
        raise ScheduleNotFound(name, [one.name for one in await read_schedules(client.store)])
    return found[0]


async def pause_schedule(client: Client, name: str) -> Schedule:
    """Fire no more ticks of a schedule until it is resumed. Jobs that exist are not affected."""

    def paused(schedule: Schedule, now: datetime) -> Schedule:
        return schedule if schedule.paused_at else replace(schedule, paused_at=now, paused_by=client.by)

    return await _change(client, name, paused)


async def resume_schedule(client: Client, name: str) -> Schedule:
    """Fire ticks again, from now on: those of the pause are not caught up."""

    def resumed(schedule: Schedule, now: datetime) -> Schedule:
        if schedule.paused_at is None:
            return schedule
        return replace(schedule, paused_at=None, paused_by="", through=max(now, schedule.through))

    return await _change(client, name, resumed)


async def _change(client: Client, name: str, change: Callable[[Schedule, datetime], Schedule]) -> Schedule:
    for _ in range(TRIES):
        found = await find_schedule(client, name)
        changed = change(found.schedule, moment(client.wall()))
        if changed == found.schedule or await _write(client, name, changed, found.revision):
            return changed
    raise RecordChanged("schedule", name)


async def run_schedule_now(client: Client, name: str, *, key: str | None = None) -> tuple[str, bool]:
    """Submit a job of the schedule, besides its ticks. Returns the id of the job, and whether it is new: with
    `overlap="skip"` it is the unfinished job, if there is one. `key` is the idempotency key of the job."""
    found = await find_schedule(client, name)
    spec = job_now(name, found.schedule.declaration, client.new_id(), by=client.by)
    if key is not None:
        spec = replace(spec, key=key, digest=digest(spec))
    job = await client.submit(spec)
    return job, job == spec.id


async def remove_schedule(client: Client, name: str) -> StoredSchedule:
    """Delete a schedule. Its jobs stay. A worker whose code declares it writes it anew when it starts."""
    for _ in range(TRIES):
        found = await find_schedule(client, name)
        put = Put(kind=SCHEDULE_KIND, name=name, value=None, expect=found.revision, by=client.by)
        if (await client.store.put([put]))[0] is not None:
            await _forget_slot(client, name)
            return found
    raise RecordChanged("schedule", name)


async def _forget_slot(client: Client, name: str) -> None:
    """Delete the limit of its jobs, unless some are left."""
    for usage in await client.store.usage(overlap_name(name)):
        if not usage.used and not usage.waiting:
            await client.store.put([Put(kind="resource", name=usage.name, value=None)])

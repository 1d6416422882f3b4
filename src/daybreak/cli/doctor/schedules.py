"""Checks the schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

from daybreak.api.schedules.info import ScheduleInfo, all_schedules
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.client.schedule_record import overlap_name
from daybreak.core.model import State
from daybreak.core.text import ago, as_argument, counted, lasted, local
from daybreak.store.protocol import Finding, ok_finding

MANY_WAIT: Final = 10  # jobs of one schedule behind each other


async def about_schedules(client: Client, here: Session, now: datetime) -> AsyncIterator[Finding]:
    """Schedules that do not do what they should."""
    found = await all_schedules(client)
    for info in found:
        async for finding in _findings(client, here, info, now):
            yield finding
    well = sum(info.state == "active" and info.is_known for info in found)
    if well:
        yield ok_finding(f"{counted(well, 'schedule')} active")


async def _findings(client: Client, here: Session, info: ScheduleInfo, now: datetime) -> AsyncIterator[Finding]:
    where = f"schedule {info.name}"
    show = here.command("schedules", "show", *as_argument(info.name))
    if info.state == "late" and info.next_tick is not None:
        yield Finding(
            f"{where} should have ticked {ago(info.next_tick, now)}: nothing fires ticks, or its clock is wrong",
            cure=f"start a worker, or {here.command('serve')}",
        )
    if info.state == "ahead":
        yield Finding(
            f"{where} has done its ticks up to {local(info.through)}, which is in the future: a clock is or was wrong",
            cure="correct the clocks of the machines that run workers; it continues by itself a minute after that",
        )
    if info.state == "unknown zone":
        yield Finding(f"{where}: this machine does not know the time zone {info.tz}", cure="pip install tzdata")
    if info.state == "paused" and info.paused_at is not None:
        resume = here.command("schedules", "resume", *as_argument(info.name))
        yield Finding(f"{where} was paused {ago(info.paused_at, now)} by {info.paused_by or 'someone'}", cure=resume)
    if info.state == "moving":
        yield Finding(f"{where} was being moved to another store", cure="repeat the move: " + here.command("move"))
    if not info.is_known:
        yield Finding(
            f"{where}: no live worker knows its task {info.task}, version {info.version}, so its jobs wait",
            cure=f"start a worker whose code has it, or {here.command('schedules', 'remove', info.name)}",
        )
    if info.last_state is State.FAILED and info.last_job is not None:
        yield Finding(f"the last job of {where} failed", cure=here.command("jobs", "show", info.last_job))
    if info.overlap == "queue":
        for usage in await client.store.usage(overlap_name(info.name)):
            if usage.waiting >= MANY_WAIT:
                every = "" if info.every is None else f" {lasted(info.every)}"
                yield Finding(
                    f"{counted(usage.waiting, 'job')} of {where} wait for each other: a job takes longer than the "
                    f"interval{every}",
                    cure=f"tick less often, or use overlap='skip'; {show}",
                )

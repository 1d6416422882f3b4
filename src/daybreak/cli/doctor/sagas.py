"""Checks the sagas that have not ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.client.saga_record import SagaOutline, read_unfinished
from daybreak.core.text import ago, as_argument, counted
from daybreak.store.protocol import Finding, ok_finding

SHOWN: Final = 10
LATE_AFTER: Final = timedelta(minutes=2)  # the job of a step has ended, and nobody has reacted for so long


async def about_sagas(client: Client, here: Session, now: datetime) -> AsyncIterator[Finding]:
    """Sagas that wait for somebody: stuck ones, those that no process drives, and those of a move that was broken
    off."""
    found = await read_unfinished(client.store)
    stuck = [one for one in found if one.progress.phase == "stuck"]
    for one in stuck[:SHOWN]:
        yield _stuck(one, here, now)
    if len(stuck) > SHOWN:
        what = f"{counted(len(stuck) - SHOWN, 'more saga is', 'more sagas are')} stuck"
        yield Finding(what, cure=here.command("sagas", "--state", "stuck"))
    late = await _not_driven(client, found, now)
    if late:
        what = f"{counted(len(late), 'saga waits', 'sagas wait')} though the job of the step has ended"
        yield Finding(f"{what}: nothing drives sagas", cure=f"start a worker, or {here.command('serve')}")
    if any(one.moving for one in found):
        n = sum(one.moving for one in found)
        what = f"{counted(n, 'saga was', 'sagas were')} being moved to another store"
        yield Finding(what, cure="repeat the move: " + here.command("move"))
    well = len(found) - len(stuck) - len(late) - sum(one.moving for one in found)
    if well:
        yield ok_finding(f"{counted(well, 'saga')} under way")


def _stuck(one: SagaOutline, here: Session, now: datetime) -> Finding:
    step = one.progress.steps[one.progress.current or 0]
    what = f"saga {one.id} ({one.name}) got stuck {ago(one.changed_at, now)}: step {step.name} cannot be undone"
    reason = f": {step.undo_error}" if step.undo_error else ""
    return Finding(what + reason, cure=here.command("sagas", "resume", *as_argument(one.id)))


async def _not_driven(client: Client, found: list[SagaOutline], now: datetime) -> list[SagaOutline]:
    waiting = [
        one for one in found if one.progress.phase != "stuck" and not one.moving and now - one.changed_at > LATE_AFTER
    ]
    jobs = await client.store.get([one.progress.current_job for one in waiting]) if waiting else []
    return [
        one
        for one, job in zip(waiting, jobs, strict=True)
        if job is None or (job.is_final and now - (job.finished_at or now) > LATE_AFTER)
    ]

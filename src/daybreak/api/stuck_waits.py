"""Detects a wait inside a task that can never end, because waiting jobs hold all slots that could run the awaited job.

Two seconds after a job begins to wait for another job, it records in the store what it waits for (see
`client.waits`). Then it checks whether such waits hold every slot that could run the awaited job. If so, it logs a
warning that says what to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.client.waits import KIND, Wait, all_waits
from daybreak.core.errors import DaybreakError
from daybreak.core.model import Job, Put, State
from daybreak.core.units import moment
from daybreak.tasks.context import Context, current
from daybreak.tasks.registry import Program
from daybreak.worker.supervisor import worker_record

LONGEST_PAUSE: Final = timedelta(minutes=1)  # between two checks
DELETE_TIMEOUT: Final = timedelta(seconds=1)  # for deleting the record of a wait that has ended


class Stuck(Struct, frozen=True):
    """A job that cannot start, because jobs that wait hold all `slots` that could run it."""

    job: Job
    slots: int
    is_async: bool

    def __str__(self) -> str:
        spec = self.job.spec
        if self.slots == 1:
            why = "this job itself holds the only slot that could run it"
        else:
            why = f"jobs that wait for other jobs hold all {self.slots} slots that could run it"
        option = "--async-jobs" if self.is_async else "--processes"
        return (
            f"waits for job {spec.id} ({spec.task}), which cannot start: {why}; "
            f"start another worker, or restart this one with more slots ({option})"
        )


@contextlib.asynccontextmanager
async def watch_wait(
    client: Client, program: Program, waits_for: Callable[[], str], *, after: timedelta, every: timedelta
) -> AsyncIterator[None]:
    """Enclose a wait. If a job waits, check after `after`, and then at growing intervals that start with `every`,
    whether the wait can end."""
    ctx = current.get(None)
    if ctx is None or not ctx.job or ctx.task not in program or not _has_loop():
        yield
        return
    watch = asyncio.create_task(_watch(client, program, ctx, waits_for, after=after, every=every))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait([watch], timeout=DELETE_TIMEOUT.total_seconds())


def _has_loop() -> bool:
    """Whether an event loop is running. In inline mode there is none, and nothing waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _watch(
    client: Client, program: Program, ctx: Context, waits_for: Callable[[], str], *, after: timedelta, every: timedelta
) -> None:
    """Check until cancelled. Errors are suppressed, because the wait itself does not depend on the checks."""
    await asyncio.sleep(after.total_seconds())
    is_async = program[ctx.task].is_async
    try:
        with contextlib.suppress(DaybreakError):
            while True:
                wait = Wait(ctx.job, ctx.fence, waits_for(), is_async)
                await client.store.put([wait.put()])
                # Check after the write: if several jobs begin to wait at the same time, the last one sees all others.
                if (stuck := await find_stuck(client, program, wait.awaited)) is not None:
                    ctx.log.warning("%s", stuck)
                    break
                await asyncio.sleep(every.total_seconds())
                every = min(2 * every, LONGEST_PAUSE)
        await asyncio.Event().wait()  # until cancelled, when the wait is over
    finally:
        with contextlib.suppress(DaybreakError):
            await client.store.put([Put(kind=KIND, name=ctx.job, value=None)])


async def find_stuck(client: Client, program: Program, job_id: str) -> Stuck | None:
    """Return why this job cannot start because of jobs that wait. None if it can start, or if that is not certain."""
    job = await client.get(job_id)
    task = (job.spec.task, job.spec.version)
    # A job that was present at a crash runs in a reserved child, outside the slots.
    if job.state is not State.QUEUED or job.lost or job.spec.task not in program:
        return None
    now, is_async = moment(client.wall()), program[job.spec.task].is_async
    workers = [worker_record.read(record) for record in await client.store.records(worker_record.KIND)]
    able = [
        worker
        for worker in workers
        if worker.is_live(now) and not worker.stopping and task in worker.tasks and job.spec.queue in worker.queues
    ]
    slots = {worker.id: worker.async_jobs if is_async else worker.processes for worker in able}
    held = await _held_by_waits(client, is_async=is_async)
    if not slots or any(held[worker] < n for worker, n in slots.items()):
        return None
    return Stuck(job, sum(slots.values()), is_async)


async def _held_by_waits(client: Client, *, is_async: bool) -> Counter[str]:
    """The number of slots per worker that jobs hold while they wait."""
    waits = await all_waits(client.store)
    return Counter(job.worker for wait, job, _ in waits if wait.is_async is is_async and job.worker is not None)

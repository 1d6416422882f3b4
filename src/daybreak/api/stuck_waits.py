"""A wait inside a task that can never end: all slots that could run the awaited job are held by jobs that wait.

Around each wait, a job writes down after two seconds what it waits for (`waits`), and looks whether every slot that
could run that job is held by such a wait. If so, it logs that, with the cure."""

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

LONGEST_PAUSE: Final = timedelta(minutes=1)  # between two looks
DELETED_WITHIN: Final = timedelta(seconds=1)  # or nobody waits for it any longer


class Stuck(Struct, frozen=True):
    """A job that cannot start, because all `slots` it could run in are held by jobs that wait."""

    job: Job
    slots: int
    is_async: bool

    def __str__(self) -> str:
        spec = self.job.spec
        if self.slots == 1:
            held = "the only slot that could run it is held by this job itself, which waits"
        else:
            held = f"all {self.slots} slots that could run it are held by jobs that wait for other jobs"
        more = "--async-jobs" if self.is_async else "--processes"
        return (
            f"waits for job {spec.id} ({spec.task}), which cannot start: {held}; "
            f"start another worker, or this one with more slots ({more})"
        )


@contextlib.asynccontextmanager
async def inside_a_task(
    client: Client, program: Program, waits_for: Callable[[], str], *, after: timedelta, every: timedelta
) -> AsyncIterator[None]:
    """Around a wait. If it is made by a job, look from `after` on, at first `every` so often, whether it can end."""
    ctx = current.get(None)
    if ctx is None or not ctx.job or ctx.task not in program or not _has_loop():
        yield
        return
    watching = asyncio.create_task(_watch(client, program, ctx, waits_for, after=after, every=every))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching], timeout=DELETED_WITHIN.total_seconds())


def _has_loop() -> bool:
    """False in inline mode, where nothing waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _watch(
    client: Client, program: Program, ctx: Context, waits_for: Callable[[], str], *, after: timedelta, every: timedelta
) -> None:
    """Raises nothing: the wait itself goes on without it."""
    await asyncio.sleep(after.total_seconds())
    is_async = program[ctx.task].is_async
    try:
        with contextlib.suppress(DaybreakError):
            while True:
                wait = Wait(ctx.job, ctx.fence, waits_for(), is_async)
                await client.store.put([wait.put()])
                # After it is written: of several who come to wait at the same time, the last sees all others.
                if (stuck := await find_stuck(client, program, wait.awaited)) is not None:
                    ctx.log.warning("%s", stuck)
                    break
                await asyncio.sleep(every.total_seconds())
                every = min(2 * every, LONGEST_PAUSE)
        await asyncio.Event().wait()  # until the wait is over
    finally:
        with contextlib.suppress(DaybreakError):
            await client.store.put([Put(kind=KIND, name=ctx.job, value=None)])


async def find_stuck(client: Client, program: Program, job_id: str) -> Stuck | None:
    """Whether this job cannot start because of jobs that wait; None also where that is not certain."""
    job = await client.get(job_id)
    task = (job.spec.task, job.spec.version)
    # One that was at a death runs in a child of its own, beside the slots.
    if job.state is not State.QUEUED or job.lost or job.spec.task not in program:
        return None
    now, is_async = moment(client.wall()), program[job.spec.task].is_async
    workers = [worker_record.read(found) for found in await client.store.records(worker_record.KIND)]
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
    """How many slots of each worker are held by jobs that wait."""
    waits = await all_waits(client.store)
    return Counter(job.worker for wait, job, _ in waits if wait.is_async is is_async and job.worker is not None)

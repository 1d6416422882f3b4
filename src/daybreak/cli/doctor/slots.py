"""Finds deadlocks of slots: jobs that hold every slot while they wait for jobs that need one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from daybreak.api.worker_info import WorkerInfo
from daybreak.cli.session import Session
from daybreak.client.client import Client
from daybreak.client.waits import all_waits
from daybreak.core.model import Job, State
from daybreak.core.text import counted, safe
from daybreak.store.protocol import Finding

_MAX_CHECKED: Final = 10_000  # running jobs that are read; if there are more, nothing is reported
_PAGE: Final = 1000


async def about_slots(client: Client, live: list[WorkerInfo], session: Session) -> AsyncIterator[Finding]:
    """Report only what is certain: the awaited job is queued, and every slot that could run it is held by a job that
    waits in the same way, so that no slot becomes free until one of them gives up."""
    waits = {wait.job: (job, other) for wait, job, other in await all_waits(client.store)}
    if not waits or (held := await _held(client, live)) is None:
        return
    # A job is not stuck if the job that it awaits runs or may still get a slot. Remove such jobs until none is left.
    stuck = dict(waits)
    while True:
        free = [job for job, (_, other) in stuck.items() if not _is_hopeless(other, live, held, stuck)]
        if not free:
            break
        for job in free:
            del stuck[job]
    if not stuck:
        return
    waiting, awaited = stuck[min(stuck)]
    n = len(stuck) - 1
    more = f"; so {'does' if n == 1 else 'do'} {counted(n, 'other job')}" if n else ""
    yield Finding(
        f"the job {waiting.id} of {safe(waiting.spec.task)!r} waits for the job {awaited.id} of "
        f"{safe(awaited.spec.task)!r}, which is queued, and every slot that could run it is held by a job that waits "
        f"in the same way{more}: none of them can continue",
        cure=f"start one more worker, which has free slots: {session.start_worker()}; to prevent this, make the "
        "waiting task async, or give the jobs that it waits for their own queue and workers",
    )


async def _held(client: Client, live: list[WorkerInfo]) -> dict[tuple[str, bool], list[str]] | None:
    """The running jobs of each worker, by whether they run on its event loop. None if there are too many to read."""
    on_loop = {worker.id: {*worker.on_loop} for worker in live}
    held: dict[tuple[str, bool], list[str]] = defaultdict(list)
    cursor, checked = None, 0
    while True:
        page = await client.find(state=State.RUNNING, limit=_PAGE, cursor=cursor)
        for job in page.jobs:
            if job.worker in on_loop and not job.detached:
                held[job.worker, job.spec.task in on_loop[job.worker]].append(job.id)
        checked += len(page.jobs)
        if (cursor := page.cursor) is None:
            return held
        if checked >= _MAX_CHECKED:
            return None


def _is_hopeless(
    awaited: Job, live: list[WorkerInfo], held: dict[tuple[str, bool], list[str]], stuck: dict[str, tuple[Job, Job]]
) -> bool:
    """Whether every slot that could run the job is held by a stuck job. False if no worker could run it at all: another
    finding reports that."""
    spec = awaited.spec
    able = [
        worker
        for worker in live
        if (spec.task, spec.version) in worker.tasks and (not worker.queues or spec.queue in worker.queues)
    ]
    if awaited.state is not State.QUEUED or not able:
        return False
    for worker in able:
        is_on_loop = spec.task in worker.on_loop
        slots = worker.async_jobs if is_on_loop else worker.processes
        holders = held[worker.id, is_on_loop]
        if not slots or len(holders) < slots or any(job not in stuck for job in holders):
            return False
    return True

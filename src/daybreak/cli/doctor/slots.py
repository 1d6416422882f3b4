"""Jobs that wait for jobs which only their own slots could run: none of them can go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from daybreak.api.worker_info import WorkerInfo
from daybreak.cli.session import Session
from daybreak.cli.text import counted, safe
from daybreak.client.client import Client
from daybreak.client.waits import all_waits
from daybreak.core.model import Job, State
from daybreak.store.protocol import Finding

_RUNNING: Final = 10_000  # running jobs that are looked at; with more, nothing is claimed
_PAGE: Final = 1000


async def about_slots(client: Client, live: list[WorkerInfo], session: Session) -> AsyncIterator[Finding]:
    """Claims only what is certain: the awaited job is queued, every slot that could run it is held by a job that waits
    for such a job itself, and so no slot becomes free before one of them gives up."""
    waits = {wait.job: (job, other) for wait, job, other in await all_waits(client.store)}
    if not waits or (held := await _held(client, live)) is None:
        return
    # Whoever waits for a job that may still get a slot, or already runs, may go on: take those out until none is left.
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
        f"in the same way{more}: none can go on",
        cure=f"start one more worker, which has free slots: {session.start_worker()}; to prevent it, make the task "
        "that waits async, or give the jobs it waits for workers and a queue of their own",
    )


async def _held(client: Client, live: list[WorkerInfo]) -> dict[tuple[str, bool], list[str]] | None:
    """The running jobs of each worker, on its loop and otherwise; None if there are too many to look at."""
    on_loop = {seen.id: {*seen.on_loop} for seen in live}
    held: dict[tuple[str, bool], list[str]] = defaultdict(list)
    cursor, looked_at = None, 0
    while True:
        page = await client.find(state=State.RUNNING, limit=_PAGE, cursor=cursor)
        for job in page.jobs:
            if job.worker in on_loop:
                held[job.worker, job.spec.task in on_loop[job.worker]].append(job.id)
        looked_at += len(page.jobs)
        if (cursor := page.cursor) is None:
            return held
        if looked_at >= _RUNNING:
            return None


def _is_hopeless(
    awaited: Job, live: list[WorkerInfo], held: dict[tuple[str, bool], list[str]], stuck: dict[str, tuple[Job, Job]]
) -> bool:
    """Whether only slots of jobs that are stuck could run it, and there is such a slot. Where no worker could, another
    finding says so."""
    spec = awaited.spec
    able = [
        seen
        for seen in live
        if (spec.task, spec.version) in seen.tasks and (not seen.queues or spec.queue in seen.queues)
    ]
    if awaited.state is not State.QUEUED or not able:
        return False
    for seen in able:
        is_on_loop = spec.task in seen.on_loop
        slots = seen.async_jobs if is_on_loop else seen.processes
        holders = held[seen.id, is_on_loop]
        if not slots or len(holders) < slots or any(job not in stuck for job in holders):
            return False
    return True

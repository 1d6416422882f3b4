"""Pages about what jobs share: queues, resources, known results, locks, schedules, workers; and who changed what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from daybreak.api.cache import cache_figures
from daybreak.api.cache.figures import entries_page
from daybreak.api.locks.lock_job import all_waiters
from daybreak.api.oldest import oldest_per_queue
from daybreak.api.queue_info import read_queues
from daybreak.api.resources import all_resources
from daybreak.api.schedules.info import all_schedules, next_ticks
from daybreak.api.trends import trends_of
from daybreak.api.views.job_stack import memory_text
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.core.model import State
from daybreak.core.units import moment
from daybreak.policy.resources import LOCK_PREFIX
from daybreak.server.audit import read_audit
from daybreak.server.bodies.audit import AuditQuery
from daybreak.server.dashboard.drawings import sparkline
from daybreak.server.dashboard.renderer import query_text, render
from daybreak.server.routing import Call, Routes, may

routes = Routes("dashboard", prefix="")
_READ: Final = may("read", needs_all_queues=True)
_ADMIN: Final = may("admin", needs_all_queues=True)
HTML: Final = "text/html"
LAST_HOUR: Final = timedelta(hours=1)
TICKS_SHOWN: Final = 5
ENTRIES_SHOWN: Final = 50


@routes.get("/queues", _READ, answer=str, answer_type=HTML, summary="Queues")
async def show_queues_page(call: Call[None, None]) -> Any:
    """Depth, running jobs, the last hour and the settings of every queue, with buttons that change them."""
    client = await call.client()
    queues = await read_queues(client)
    oldest = await oldest_per_queue(client)
    trends = await trends_of(client, LAST_HOUR, by="queue", resolution="minute")
    lines = {group.name: sparkline([point.completed for point in group.points]) for group in trends.groups}
    completed = {group.name: group.figures.completed for group in trends.groups}
    return render(
        call, "queues.html", page="queues", queues=queues, oldest=oldest, lines=lines, completed=completed
    )  # fmt: skip


@routes.get("/resources", _READ, answer=str, answer_type=HTML, summary="Resources and breakers")
async def show_resources_page(call: Call[None, None]) -> Any:
    """Slots in use, rates, breakers, and how many jobs wait."""
    found = [info for info in await all_resources(await call.client()) if not info.name.startswith(LOCK_PREFIX)]
    return render(call, "resources.html", page="resources", resources=found)


@routes.get("/cache", _READ, answer=str, answer_type=HTML, summary="Known results")
async def show_cache_page(call: Call[None, None]) -> Any:
    """What is known of cached tasks, what that has saved, and the results that were used last."""
    client = await call.client()
    figures = await cache_figures(client)
    entries, _ = await entries_page(client, limit=ENTRIES_SHOWN)
    return render(call, "cache.html", page="cache", figures=figures, entries=entries)


@routes.get("/locks", _READ, answer=str, answer_type=HTML, summary="Locks and waiters")
async def show_locks_page(call: Call[None, None]) -> Any:
    """Who holds each lock, and who waits for it."""
    return render(call, "locks.html", page="locks", locks=await all_waiters(await call.client()))


@routes.get("/schedules", _READ, answer=str, answer_type=HTML, summary="Schedules")
async def show_schedules_page(call: Call[None, None]) -> Any:
    """When each schedule ticks, its next ticks, its last job, and buttons that pause it or run it now."""
    client = await call.client()
    found = await all_schedules(client)
    following = {info.name: next_ticks(info, moment(client.wall()), TICKS_SHOWN) for info in found}
    return render(call, "schedules.html", page="schedules", schedules=found, following=following)


@routes.get("/workers", _READ, answer=str, answer_type=HTML, summary="Workers")
async def show_workers_page(call: Call[None, None]) -> Any:
    """The live workers and what they run, then those that stopped or disappeared."""
    client = await call.client()
    now = moment(client.wall())
    running: dict[str, list[Any]] = {}
    for job in (await client.find(state=State.RUNNING, limit=500)).jobs:
        if not job.detached:
            running.setdefault(job.worker or "", []).append(job)
    workers = [(worker, worker.state(now), running.get(worker.id, [])) for worker in await read_workers(client)]
    return render(call, "workers.html", page="workers", workers=workers, worker_memory=_memory_of)


def _memory_of(worker: WorkerInfo) -> str:
    """The memory of each process of a worker, in one line."""
    own = f"worker {memory_text(worker.memory)}"
    return ", ".join([own, *(f"process {pid} {memory_text(memory)}" for pid, memory in worker.children)])


@routes.get("/audit", _ADMIN, query=AuditQuery, answer=str, answer_type=HTML, summary="Who changed what")
async def show_audit_page(call: Call[AuditQuery, None]) -> Any:
    """The latest changes that were made through the server."""
    store = (await call.client()).store
    await call.server.writes.audit.submits.write(store)
    query = call.query
    entries, cursor = await read_audit(store, limit=query.limit, before=query.cursor, by=query.by)
    following = query_text(cursor=cursor, by=query.by) if cursor is not None else ""
    return render(call, "audit.html", page="audit", entries=entries, next=following, query=query)

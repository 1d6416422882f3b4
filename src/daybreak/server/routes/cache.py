"""`/cache`: known results of cached tasks."""

from __future__ import annotations

from typing import Any

from daybreak.api.cache import cache_figures, cache_why, clear, invalidate
from daybreak.api.cache.figures import entries_page
from daybreak.api.views.cache import cache_why_view, entry_view, figures_view
from daybreak.server.bodies.cache import (
    CacheBody,
    CacheEntriesBody,
    CacheEntriesQuery,
    CacheWhyBody,
    ClearBody,
    Dropped,
    InvalidateBody,
)
from daybreak.server.routing import Call, Routes, may

routes = Routes("cache")
_READ = may("read", needs_all_queues=True)
_ADMIN = may("admin", needs_all_queues=True)


@routes.get("/cache", _READ, answer=CacheBody, summary="What is known, and what that has saved")
async def show_cache(call: Call[None, None]) -> Any:
    """For each cached task: its known results, how often they were used, and how much time that saved."""
    return figures_view(await cache_figures(await call.client()))


@routes.get(
    "/cache/entries", _READ, query=CacheEntriesQuery, answer=CacheEntriesBody, summary="Known results"
)  # fmt: skip
async def list_cache_entries(call: Call[CacheEntriesQuery, None]) -> Any:
    """Without the results themselves: those are the results of the jobs."""
    query = call.query
    found, cursor = await entries_page(await call.client(), task=query.task, limit=query.limit, cursor=query.cursor)
    return {"entries": [entry_view(entry) for entry in found], "cursor": cursor}


@routes.get("/jobs/{id}/cache", may("read"), answer=CacheWhyBody, summary="What the cache did for a job")
async def explain_cache(call: Call[None, None]) -> Any:
    """Whether the job got a known result; if it had to be computed, what differs from the nearest known one."""
    client = await call.client()
    call.check_queue((await client.get(call.path["id"])).spec.queue)
    return cache_why_view(await cache_why(client, call.path["id"]))


@routes.post(
    "/cache/invalidate", _ADMIN, body=InvalidateBody, answer=Dropped, summary="Drop known results of a task or a job"
)
async def invalidate_cache(call: Call[None, InvalidateBody]) -> Any:
    """The next job computes the result anew. Jobs that have a dropped result keep it."""
    body = call.body
    dropped = await invalidate(
        await call.client(), task=body.task, job=body.job, flight=body.flight, dry_run=body.dry_run
    )
    return {"dropped": dropped, "dry_run": body.dry_run}


@routes.post(
    "/cache/clear", _ADMIN, body=ClearBody, body_is_optional=True, answer=Dropped, summary="Drop all known results"
)
async def clear_cache(call: Call[None, ClearBody]) -> Any:
    """Jobs that have a dropped result keep it."""
    dry_run = call.body.dry_run if call.body is not None else False
    return {"dropped": await clear(await call.client(), dry_run=dry_run), "dry_run": dry_run}

"""Drops known results, in bounded chunks. The jobs that have them keep them."""

from __future__ import annotations

from typing import Final

from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import Job
from daybreak.store.protocol import CacheEntry, CacheQuery, Uncache

CHUNK: Final = 500
COUNTED: Final = 1000  # entries of one page, to count what would be dropped


async def invalidate(
    client: Client, *, task: str | None = None, job: str | None = None, flight: str | None = None, dry_run: bool = False
) -> int:
    """Drop the results of a task, the result that a job has or would use, or that of a flight. Returns how many. With
    `dry_run` they are only counted."""
    given = [name for name, value in (("task", task), ("job", job), ("flight", flight)) if value is not None]
    if len(given) != 1:
        raise BadInput("name one thing whose results are to be dropped: a task, a job or a flight")
    if job is not None:
        flight = flight_of(await client.get(job))
    if dry_run:
        return await _count(client, task=task, flight=flight)
    return await _drop(client, Uncache(task=task, flights=() if flight is None else (flight,), limit=CHUNK))


async def clear(client: Client, *, dry_run: bool = False) -> int:
    """Drop all known results. Returns how many."""
    return await _count(client) if dry_run else await _drop(client, Uncache(limit=CHUNK))


def flight_of(job: Job) -> str:
    """The flight of a job whose task is cached."""
    if job.spec.flight is None:
        raise BadInput(f"job {job.id} is not cached: its task {job.spec.task!r} was submitted without a cache")
    return job.spec.flight


async def entry_of(client: Client, flight: str) -> CacheEntry | None:
    """What is known under a flight."""
    page = await client.store.cached(CacheQuery(flights=(flight,), limit=1))
    return page.entries[0] if page.entries else None


async def _drop(client: Client, request: Uncache) -> int:
    dropped = 0
    while True:
        answer = await client.store.uncache(request)
        dropped += answer.dropped
        if not answer.again:
            return dropped


async def _count(client: Client, *, task: str | None = None, flight: str | None = None) -> int:
    found, cursor = 0, None
    while True:
        flights = () if flight is None else (flight,)
        page = await client.store.cached(CacheQuery(task=task, flights=flights, limit=COUNTED, cursor=cursor))
        found += len(page.entries)
        if (cursor := page.cursor) is None:
            return found

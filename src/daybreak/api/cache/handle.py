"""`app.cache`: the cache of the app's store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daybreak.api.cache.changes import clear, invalidate
from daybreak.api.cache.figures import CacheFigures, cache_figures, entries_page
from daybreak.api.cache.why_missed import CacheWhy, cache_why
from daybreak.api.job_handle import JobHandle
from daybreak.api.portal import Portal, blocking
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.core.errors import BadInput
from daybreak.store.protocol import CacheEntry

if TYPE_CHECKING:
    from daybreak.api.task import Task


class CacheHandle:
    """What is known of cached tasks, what it has saved, and how to drop it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    @on_store_loop
    async def astats(self) -> CacheFigures:
        """The entries, their size, the hits and the time saved, in all and by task."""
        return await cache_figures(await self._sessions.client())

    stats = blocking(astats)

    @on_store_loop
    async def aentries(self, task: Task[..., Any] | str | None = None, *, limit: int = 100) -> list[CacheEntry]:
        """The known results, of a task or of all, the most recently used first."""
        if not 1 <= limit <= 1000:
            raise BadInput(f"limit={limit}: write 1 to 1000")
        return (await entries_page(await self._sessions.client(), task=_name(task), limit=limit))[0]

    entries = blocking(aentries)

    @on_store_loop
    async def awhy(self, job: JobHandle[Any] | str) -> CacheWhy:
        """What the cache did for a job. If the job was computed: what differs from the nearest known result."""
        return await cache_why(await self._sessions.client(), _id(job))

    why = blocking(awhy)

    @on_store_loop
    async def ainvalidate(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        job: JobHandle[Any] | str | None = None,
        flight: str | None = None,
    ) -> int:
        """Drop the results of a task, the one that a job has or would use, or that of a flight, and return how many.
        Jobs that have such a result keep it."""
        return await invalidate(
            await self._sessions.client(), task=_name(task), job=None if job is None else _id(job), flight=flight
        )

    invalidate = blocking(ainvalidate)

    @on_store_loop
    async def aclear(self) -> int:
        """Drop all known results, and return how many."""
        return await clear(await self._sessions.client())

    clear = blocking(aclear)


def _name(task: Task[..., Any] | str | None) -> str | None:
    if task is None or isinstance(task, str):
        return task
    name: str = task.name
    return name


def _id(job: JobHandle[Any] | str) -> str:
    return job.id if isinstance(job, JobHandle) else job

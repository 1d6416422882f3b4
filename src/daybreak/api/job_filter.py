"""Which jobs are meant, for lists and for changes of many jobs.

Stores have no filter for times: they are judged here, over the jobs that a store finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.model import Job, State

PAGE: Final = 1000
LOOKED_AT: Final = 10_000  # jobs that one page with a time looks at


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs are meant; a field that is empty means any. With a time, the jobs that ended in it are meant, and the
    unfinished jobs that were submitted in it."""

    states: tuple[State, ...] = ()
    reason: str | None = None
    queue: str | None = None
    task: str | None = None
    run: str | None = None
    owner: str | None = None
    key: str | None = None
    priority: int | None = None
    tag: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()

    @property
    def is_timed(self) -> bool:
        return self.since is not None or self.until is not None

    def where(self) -> dict[str, Any]:
        """The filter as the client takes it, without the times."""
        names = ("reason", "queue", "task", "run", "owner", "key", "priority", "tag")
        named = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {"state": self.states or None, **named}

    def is_within(self, job: Job) -> bool:
        """Whether the job belongs to the time of the filter."""
        at = job.finished_at or job.created_at
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


async def find_jobs(client: Client, wanted: JobFilter, limit: int, cursor: str | None) -> tuple[list[Job], str | None]:
    """At most `limit` jobs, and the cursor of the next page; None means that there are no more.

    With a time, a page may be short and yet not the last: it ends after 10,000 jobs that were looked at."""
    jobs: list[Job] = []
    looked_at = 0
    while True:
        missing = limit - len(jobs)
        size = PAGE if wanted.is_timed else min(missing, PAGE)
        page = await client.find(limit=size, cursor=cursor, **wanted.where())
        within = [n for n, job in enumerate(page.jobs) if wanted.is_within(job)]
        if len(within) > missing:
            # The page again, up to the last job that is wanted: its cursor leads to the next one.
            page = await client.find(limit=within[missing - 1] + 1, cursor=cursor, **wanted.where())
        jobs += [job for job in page.jobs if wanted.is_within(job)]
        looked_at += len(page.jobs)
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit or (wanted.is_timed and looked_at >= LOOKED_AT):
            return jobs[:limit], cursor


async def find_all_jobs(client: Client, wanted: JobFilter) -> AsyncIterator[Job]:
    """Every job that matches."""
    async for job in client.find_all(**wanted.where()):
        if wanted.is_within(job):
            yield job


async def count_jobs(client: Client, wanted: JobFilter) -> dict[State, int]:
    """How many jobs match, by state: exact. States without a job are left out."""
    if wanted.is_timed:
        return dict(Counter([job.state async for job in find_all_jobs(client, wanted)]))
    return {state: n for state, n in (await client.count(**wanted.where())).items() if n}

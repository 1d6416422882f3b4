"""The job filter, for lists and for changes of many jobs.

Stores cannot filter by time or by failure cluster. Both are applied here, to the jobs that a store returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.model import Job, State
from daybreak.policy.failure_clusters import fingerprint_of

PAGE: Final = 1000
MAX_SCANNED: Final = 10_000  # jobs that are read for one page of a filter with a time


class JobFilter(Struct, frozen=True, kw_only=True):
    """Selects jobs; an empty field selects any. With `since` or `until`, it selects the jobs that ended in that time
    and the unfinished jobs that were submitted in that time. `cluster` selects the jobs whose latest failure is of that
    kind (`policy/failure_clusters.py`)."""

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
    cluster: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilter()

    @property
    def is_timed(self) -> bool:
        """Whether the filter has a time or a cluster, which stores cannot filter by: each job must be read."""
        return self.since is not None or self.until is not None or self.cluster is not None

    def where(self) -> dict[str, Any]:
        """The filter as the client takes it, without the times and the cluster."""
        names = ("reason", "queue", "task", "run", "owner", "key", "priority", "tag")
        named = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {"state": self.states or None, **named}

    def is_within(self, job: Job) -> bool:
        """Whether the job is within the filter's times and cluster."""
        if self.cluster is not None and fingerprint_of(job) != self.cluster:
            return False
        at = job.finished_at or job.created_at
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


async def find_jobs(
    client: Client, job_filter: JobFilter, limit: int, cursor: str | None
) -> tuple[list[Job], str | None]:
    """Return at most `limit` jobs, and the cursor of the next page; None if there is no next page.

    With a time, a page may have fewer jobs and still not be the last: it ends after 10,000 jobs that were read."""
    jobs: list[Job] = []
    scanned = 0
    while True:
        missing = limit - len(jobs)
        size = PAGE if job_filter.is_timed else min(missing, PAGE)
        page = await client.find(limit=size, cursor=cursor, **job_filter.where())
        within = [n for n, job in enumerate(page.jobs) if job_filter.is_within(job)]
        if len(within) > missing:
            # Read the page again, only up to the last job of the result, so that its cursor continues there.
            page = await client.find(limit=within[missing - 1] + 1, cursor=cursor, **job_filter.where())
        jobs += [job for job in page.jobs if job_filter.is_within(job)]
        scanned += len(page.jobs)
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit or (job_filter.is_timed and scanned >= MAX_SCANNED):
            return jobs[:limit], cursor


async def find_all_jobs(client: Client, job_filter: JobFilter) -> AsyncIterator[Job]:
    """Iterate over all jobs that match."""
    async for job in client.find_all(**job_filter.where()):
        if job_filter.is_within(job):
            yield job


async def count_jobs(client: Client, job_filter: JobFilter) -> dict[State, int]:
    """Count the jobs that match, exactly, by state. States without a job are left out."""
    if job_filter.is_timed:
        return dict(Counter([job.state async for job in find_all_jobs(client, job_filter)]))
    return {state: n for state, n in (await client.count(**job_filter.where())).items() if n}

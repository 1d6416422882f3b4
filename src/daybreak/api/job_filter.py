"""Finds and counts the jobs that match a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from daybreak.client.client import Client
from daybreak.core.model import Job, State
from daybreak.policy.job_filter import JobFilter

PAGE: Final = 1000
MAX_SCANNED: Final = 10_000  # jobs that are read for one page of a filter with a time


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

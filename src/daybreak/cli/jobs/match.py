"""Jobs that match a filter, page by page. A time is judged here, since stores have no filter for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from daybreak.cli.options import Where
from daybreak.client.client import Client
from daybreak.core.model import Job

PAGE: Final = 1000
LOOKED_AT: Final = 10_000  # jobs that one command looks at for those of a time


async def first_jobs(client: Client, where: Where, limit: int, cursor: str | None) -> tuple[list[Job], str | None]:
    """At most so many jobs, and where the next page begins. With a time, it may begin before the limit is reached:
    after `LOOKED_AT` jobs that were looked at."""
    jobs: list[Job] = []
    looked_at = 0
    while True:
        wanted = limit - len(jobs)
        page = await client.find(limit=PAGE if where.is_timed else min(wanted, PAGE), cursor=cursor, **where.asked)
        within = [n for n, job in enumerate(page.jobs) if where.is_within(job)]
        if len(within) > wanted:
            # The page again, up to the last job that is wanted: its cursor leads to the next one.
            page = await client.find(limit=within[wanted - 1] + 1, cursor=cursor, **where.asked)
        jobs += [job for job in page.jobs if where.is_within(job)]
        looked_at += len(page.jobs)
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit or (where.is_timed and looked_at >= LOOKED_AT):
            return jobs[:limit], cursor


async def all_jobs(client: Client, where: Where) -> AsyncIterator[Job]:
    """Every job that matches."""
    async for job in client.find_all(**where.asked):
        if where.is_within(job):
            yield job

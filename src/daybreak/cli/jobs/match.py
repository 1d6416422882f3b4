"""Reads the jobs that match a filter, page by page. Times are checked here, because stores cannot filter by time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from daybreak.cli.options import Where
from daybreak.client.client import Client
from daybreak.core.model import Job

PAGE: Final = 1000
MAX_CHECKED: Final = 10_000  # jobs that one command reads to find those of a time


async def first_jobs(client: Client, where: Where, limit: int, cursor: str | None) -> tuple[list[Job], str | None]:
    """At most `limit` jobs, and the cursor of the next page. With a time filter a page may hold fewer: it ends after
    `MAX_CHECKED` jobs were read."""
    jobs: list[Job] = []
    checked = 0
    while True:
        wanted = limit - len(jobs)
        page = await client.find(limit=PAGE if where.is_timed else min(wanted, PAGE), cursor=cursor, **where.arguments)
        within = [n for n, job in enumerate(page.jobs) if where.is_within(job)]
        if len(within) > wanted:
            # Read the page again, up to the last job that is wanted, to get the cursor behind that job.
            page = await client.find(limit=within[wanted - 1] + 1, cursor=cursor, **where.arguments)
        jobs += [job for job in page.jobs if where.is_within(job)]
        checked += len(page.jobs)
        cursor = page.cursor
        if cursor is None or len(jobs) >= limit or (where.is_timed and checked >= MAX_CHECKED):
            return jobs[:limit], cursor


async def all_jobs(client: Client, where: Where) -> AsyncIterator[Job]:
    """Every job that matches."""
    async for job in client.find_all(**where.arguments):
        if where.is_within(job):
            yield job

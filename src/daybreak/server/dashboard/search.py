"""Searches the ids and arguments of jobs for a text: a bounded scan that says how far it looked."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from daybreak.api.job_filter import PAGE
from daybreak.client.client import Client
from daybreak.core.model import Job
from daybreak.policy.job_filter import JobFilter

MAX_PAGES: Final = 5  # of the store, for one page of a search


class Found(Struct, frozen=True):
    """A page of jobs. `scanned` jobs were read for it; None if the store found them by itself. `cursor` continues."""

    jobs: list[Job]
    cursor: str | None
    scanned: int | None = None


async def search_jobs(client: Client, wanted: JobFilter, text: str, limit: int, cursor: str | None) -> Found:
    """Jobs that match the filter and whose id or arguments contain the text, in any case. A whole id is found at once,
    however old the job is."""
    if not text and not wanted.is_timed:
        # One page of the store, which reads a bounded number of jobs; so it may be short, and not the last.
        page = await client.find(limit=limit, cursor=cursor, **wanted.where())
        return Found(page.jobs, page.cursor)
    if cursor is None and text:
        [known] = await client.store.get([text])
        if known is not None and wanted.queue in (None, known.spec.queue):
            return Found([known], None, scanned=1)
    needle = text.lower().encode()
    found: list[Job] = []
    scanned = 0
    for _ in range(MAX_PAGES):
        page = await client.find(limit=PAGE, cursor=cursor, **wanted.where())
        matching = [job for job in page.jobs if wanted.is_within(job) and is_hit(job, needle)]
        scanned += len(page.jobs)
        room = limit - len(found)
        if len(matching) > room:
            # Read the page again up to the last job that is shown, to get the cursor behind it.
            size = page.jobs.index(matching[room - 1]) + 1
            page = await client.find(limit=size, cursor=cursor, **wanted.where())
            matching = matching[:room]
        found += matching
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            break
    return Found(found, cursor, scanned)


def is_hit(job: Job, needle: bytes) -> bool:
    """Whether the id or the arguments contain the text, which is in lower case."""
    return needle in job.id.lower().encode() or needle in job.spec.args.lower()

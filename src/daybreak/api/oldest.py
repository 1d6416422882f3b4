"""The oldest queued job, found without reading every job."""

from __future__ import annotations

from datetime import datetime

from daybreak.client.client import Client
from daybreak.core.model import State


async def oldest_queued(client: Client, queue: str | None = None) -> datetime | None:
    """When the oldest queued job was submitted, of one queue or of all; None if no job is queued."""
    return min((await oldest_per_queue(client, queue)).values(), default=None)


async def oldest_per_queue(client: Client, queue: str | None = None) -> dict[str, datetime]:
    """When the oldest queued job of each queue was submitted. Queues without queued jobs are left out.

    Within a queue and a priority, the first job in rank order is the oldest."""
    heads = {
        (tally.queue, tally.priority)
        for tally in await client.tallies(state=State.QUEUED, queue=queue)
        if tally.n
    }  # fmt: skip
    found: dict[str, datetime] = {}
    for name, priority in sorted(heads):
        page = await client.find(queue=name, state=State.QUEUED, priority=priority, limit=1)
        while not page.jobs and page.cursor is not None:  # a page looks at a bounded number of jobs
            page = await client.find(queue=name, state=State.QUEUED, priority=priority, limit=1, cursor=page.cursor)
        for job in page.jobs:
            found[name] = min(found.get(name, job.created_at), job.created_at)
    return found

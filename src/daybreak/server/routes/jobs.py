"""`/jobs`: submit, list, look at and change jobs."""

from __future__ import annotations

from typing import Any

from daybreak.api.views.job import job_view
from daybreak.client.client import Client
from daybreak.core.model import Job
from daybreak.core.units import moment
from daybreak.server.bodies import JobBody
from daybreak.server.routing import Call, Routes, may

routes = Routes("jobs")


@routes.get("/jobs/{id}", may("read"), answer=JobBody, summary="One job")
async def show_job(call: Call[None, None]) -> Any:
    """The same fields as `daybreak jobs show --json`."""
    client, job = await found_job(call)
    return job_view(job, await client.store.history(job.id), moment(client.wall()))


async def found_job(call: Call[Any, Any]) -> tuple[Client, Job]:
    """The job of the path, if the caller may see it."""
    client = await call.client()
    job = await client.get(call.path["id"])
    call.check_queue(job.spec.queue)
    return client, job

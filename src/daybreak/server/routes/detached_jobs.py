"""`/jobs/{id}/finish` and `/extend`: jobs whose work goes on elsewhere."""

from __future__ import annotations

from typing import Any

from daybreak.api.views.job import finished_view
from daybreak.api.views.scalars import instant
from daybreak.server.bodies.detached_jobs import ExtendBody, ExtendedBody, FinishBody, FinishedBody
from daybreak.server.routes.jobs import found_job
from daybreak.server.routing import Call, Routes, may

routes = Routes("jobs")


@routes.post(
    "/jobs/{id}/finish", may("submit"), body=FinishBody, answer=FinishedBody, changes_job=True,
    summary="End a job whose work went on elsewhere",
)  # fmt: skip
async def finish_job(call: Call[None, FinishBody]) -> Any:
    """The same outcome again answers as the first time. Any other outcome of an attempt that is over is refused (409),
    as is one of an earlier attempt. A result is checked by the task, if the server has an app with the task."""
    _, job = await found_job(call)
    body = call.body
    finished = await call.server.app.afinish(
        job.id, body.result, fence=body.fence, error=body.error, permanent=body.permanent, cancelled=body.cancelled,
        timed_out=body.timed_out, note=body.note, by=call.caller.by,
    )  # fmt: skip
    return finished_view(finished)


@routes.post(
    "/jobs/{id}/extend", may("submit"), body=ExtendBody, answer=ExtendedBody, changes_job=True,
    summary="Give work that goes on elsewhere a new deadline",
)  # fmt: skip
async def extend_job(call: Call[None, ExtendBody]) -> Any:
    """409 if the attempt is over, or if the job is not detached."""
    _, job = await found_job(call)
    extended = await call.server.app.aextend(
        job.id, call.body.deadline, fence=call.body.fence, by=call.caller.by
    )  # fmt: skip
    return {"id": job.id, "fence": extended.fence, "detached_until": instant(extended.leased_until)}

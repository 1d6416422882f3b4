"""`/schedules`: when jobs are submitted again and again."""

from __future__ import annotations

import hashlib
from typing import Any

from daybreak.api.schedules.info import ScheduleInfo, all_schedules, preview_schedule, schedule_info
from daybreak.api.views.schedule import preview_view, schedule_view
from daybreak.client.schedule_changes import pause_schedule, remove_schedule, resume_schedule, run_schedule_now
from daybreak.core.errors import ScheduleNotFound
from daybreak.server.bodies.schedules import (
    Preview,
    PreviewQuery,
    RemovedSchedule,
    RunNow,
    ScheduleBody,
    ScheduleList,
)
from daybreak.server.routing import Call, Routes, may

routes = Routes("schedules")


@routes.get("/schedules", may("read"), answer=ScheduleList, summary="List schedules")
async def list_schedules(call: Call[None, None]) -> Any:
    """All schedules whose jobs are in a queue that the caller may use."""
    found = await all_schedules(await call.client())
    return {"schedules": [schedule_view(info) for info in found if call.caller.may_use(info.queue)]}


@routes.get("/schedules/{name}", may("read"), answer=ScheduleBody, summary="One schedule")
async def show_schedule(call: Call[None, None]) -> Any:
    """When it ticks, what it submits, and what it has done."""
    return schedule_view(await _allowed(call))


@routes.get(
    "/schedules/{name}/preview", may("read"), query=PreviewQuery, answer=Preview, summary="The next ticks of a schedule"
)  # fmt: skip
async def preview_one_schedule(call: Call[PreviewQuery, None]) -> Any:
    """As if it were not paused."""
    info = await _allowed(call)
    ticks = await preview_schedule(await call.client(), info.name, call.query.n)
    return {"schedule": info.name, "words": info.words, "ticks": preview_view(ticks)}


@routes.post("/schedules/{name}/pause", may("admin"), answer=ScheduleBody, summary="Pause a schedule")
async def pause_one_schedule(call: Call[None, None]) -> Any:
    """No more ticks are fired. Jobs that exist are not affected."""
    info = await _allowed(call)
    await pause_schedule(await call.client(), info.name)
    return schedule_view(await _allowed(call))


@routes.post("/schedules/{name}/resume", may("admin"), answer=ScheduleBody, summary="Resume a paused schedule")
async def resume_one_schedule(call: Call[None, None]) -> Any:
    """Ticks are fired from now on: those of the pause are not caught up."""
    info = await _allowed(call)
    await resume_schedule(await call.client(), info.name)
    return schedule_view(await _allowed(call))


@routes.post("/schedules/{name}/run-now", may("submit"), answer=RunNow, summary="Submit a job of a schedule now")
async def run_one_schedule_now(call: Call[None, None]) -> Any:
    """Besides its ticks, also while it is paused."""
    info = await _allowed(call)
    job, is_new = await run_schedule_now(await call.client(), info.name, key=_job_key(call))
    return {"schedule": info.name, "job": job, "is_new": is_new}


@routes.delete("/schedules/{name}", may("admin"), answer=RemovedSchedule, summary="Remove a schedule")
async def remove_one_schedule(call: Call[None, None]) -> Any:
    """Its jobs stay. A worker whose code declares it writes it again when it starts."""
    name = call.path["name"]
    try:
        await _allowed(call)
        await remove_schedule(await call.client(), name)
    except ScheduleNotFound:
        if call.takes_over is None:  # otherwise a server was killed after it had removed the schedule
            raise
    return {"removed": name}


async def _allowed(call: Call[Any, Any]) -> ScheduleInfo:
    """The schedule, if the caller may use the queue of its jobs."""
    info = await schedule_info(await call.client(), call.path["name"])
    call.check_queue(info.queue)
    return info


def _job_key(call: Call[Any, Any]) -> str | None:
    """An idempotency key of the job, so that a request that is repeated after a server was killed is the same job."""
    sent = call.request.headers.get("idempotency-key")
    if not sent:
        return None
    return "run-now/" + hashlib.sha256(f"{call.caller.by}\0{sent}".encode()).hexdigest()

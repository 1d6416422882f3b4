"""`/stats`, `/retries` and `/timeouts`: statistics."""

from __future__ import annotations

from typing import Any

from daybreak.api.stats import Stats, by_queue, stats_of
from daybreak.api.trends import trends_of
from daybreak.api.views.stats import stats_view
from daybreak.client.client import Client
from daybreak.core.units import moment
from daybreak.server.bodies.stats import QueueParameter, RetriesBody, StatsBody, StatsParameters, TimeoutsBody
from daybreak.server.problems import FORBIDDEN, Problem
from daybreak.server.routes.jobs import past
from daybreak.server.routing import Call, Routes, may

routes = Routes("stats")


@routes.get(
    "/stats",
    may("read"),
    query=StatsParameters,
    answer=StatsBody,
    summary="Statistics of jobs, time limits and retries",
)
async def show_stats(call: Call[StatsParameters, None]) -> Any:
    """The same as `daybreak stats --json`: exact counts since the store was created, of one queue or of all queues.
    With `since`, also the trends of the last minutes, hours or days."""
    client, stats = await _stats(call)
    query, trends = call.query, None
    if query.since is not None:
        since = past(query.since, "since", moment(client.wall()))
        trends = await trends_of(client, since, by=query.by, resolution=query.resolution, queue=query.queue)
    queues = [stats.queue]
    if query.queue is None:
        queues = await by_queue(client)
    return stats_view(stats, queues, trends)


@routes.get("/retries", may("read"), query=QueueParameter, answer=RetriesBody, summary="Statistics of retries")
async def show_retries(call: Call[QueueParameter, None]) -> Any:
    """Retries are the attempts after a job's first."""
    _, stats = await _stats(call)
    return {"queue": call.query.queue, "retries": stats_view(stats, [])["retries"]}


@routes.get(
    "/timeouts", may("read"), query=QueueParameter, answer=TimeoutsBody, summary="Statistics of time limits"
)  # fmt: skip
async def show_timeouts(call: Call[QueueParameter, None]) -> Any:
    """How often limits were exceeded, by kind, and the data of the adaptive limits."""
    _, stats = await _stats(call)
    view = stats_view(stats, [])
    return {"queue": call.query.queue, "timeouts": view["timeouts"], "adaptive": view["adaptive"]}


async def _stats(call: Call[QueueParameter, None] | Call[StatsParameters, None]) -> tuple[Client, Stats]:
    queue = call.query.queue
    if queue is not None:
        call.check_queue(queue)
    elif call.caller.queues is not None:
        names = ", ".join(sorted(call.caller.queues))
        raise Problem(FORBIDDEN, f"{call.caller.by!r} may use only these queues: {names}; name one with queue=")
    client = await call.client()
    return client, await stats_of(client, queue)

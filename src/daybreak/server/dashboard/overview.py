"""The first page: what is going on now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from daybreak.api.alerts import read_alerts
from daybreak.api.oldest import oldest_per_queue
from daybreak.api.queue_info import read_queues
from daybreak.api.trends import trends_of
from daybreak.api.views.alert import alerts_view
from daybreak.api.why import summarise
from daybreak.api.worker_info import read_workers
from daybreak.core.model import State
from daybreak.core.text import priority_name
from daybreak.core.units import moment
from daybreak.server.dashboard.renderer import render
from daybreak.server.routing import Call, Routes, may

routes = Routes("dashboard", prefix="")
WINDOW: Final = timedelta(hours=3)


@routes.get(
    "/", may("read", needs_all_queues=True), answer=str, answer_type="text/html", summary="The dashboard: now"
)  # fmt: skip
async def show_now(call: Call[None, None]) -> Any:
    """Depth by priority, throughput, waits against their targets, the oldest job, workers and alerts."""
    client = await call.client()
    now = moment(client.wall())
    queues = await read_queues(client)
    states = {state: sum(queue.states.get(state, 0) for queue in queues) for state in State}
    depth = {level: sum(queue.priorities.get(level, 0) for queue in queues) for level in range(11)}
    workers = [worker for worker in await read_workers(client) if worker.is_live(now)]
    trends = await trends_of(client, WINDOW, by="priority", resolution="minute")
    oldest = await oldest_per_queue(client)
    return render(
        call,
        "now.html",
        page="now",
        states={state.value: n for state, n in states.items()},
        depth=[(level, priority_name(level), n) for level, n in depth.items() if n],
        most=max(depth.values(), default=0),
        workers=workers,
        slots=sum((worker.processes or 0) + (worker.async_jobs or 0) for worker in workers),
        busy=sum(worker.running for worker in workers),
        figures=trends.figures,
        targets=[group for group in trends.groups if group.target is not None],
        oldest=min(oldest.values(), default=None),
        causes=await summarise(client),
        alerts=[alert for alert in alerts_view(await read_alerts(client))["alerts"] if alert["level"] != "ok"],
        points=[
            [point.at.timestamp() for point in trends.points],
            [point.completed for point in trends.points],
            [point.failed for point in trends.points],
            [point.waiting for point in trends.points],
            [point.running for point in trends.points],
        ],
    )

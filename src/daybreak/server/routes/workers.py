"""`/workers`: who runs jobs."""

from __future__ import annotations

from typing import Any

from daybreak.api.views.worker import worker_view
from daybreak.api.worker_info import read_workers
from daybreak.core.units import moment
from daybreak.server.bodies.workers import WorkerList, WorkerQuery
from daybreak.server.routing import Call, Routes, may

routes = Routes("workers")


@routes.get(
    "/workers", may("read", needs_all_queues=True), query=WorkerQuery, answer=WorkerList, summary="List workers"
)  # fmt: skip
async def list_workers(call: Call[WorkerQuery, None]) -> Any:
    """The latest start first. A live worker has updated its record within three leases."""
    client = await call.client()
    now = moment(client.wall())
    found = [worker for worker in await read_workers(client) if not call.query.live or worker.is_live(now)]
    return {"workers": [worker_view(worker, now) for worker in found]}

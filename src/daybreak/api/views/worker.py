"""A worker as JSON data."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from daybreak.api.views.scalars import instant
from daybreak.api.worker_info import WorkerInfo


def worker_view(worker: WorkerInfo, now: datetime) -> dict[str, Any]:
    """A worker's record, and the state that follows from it at `now`."""
    return {
        "id": worker.id,
        "name": worker.name,
        "state": worker.state(now),
        "host": worker.host,
        "pid": worker.pid,
        "app": worker.app,
        "queues": list(worker.queues),
        "tasks": [{"task": task, "version": version} for task, version in worker.tasks],
        "processes": worker.processes,
        "async_jobs": worker.async_jobs,
        "lease_for": worker.lease_for.total_seconds(),
        "running": worker.running,
        "done": worker.done,
        "failed": worker.failed,
        "memory": worker.total_memory,
        "children": [{"pid": pid, "memory": memory} for pid, memory in worker.children],
        "started_at": instant(worker.started_at),
        "seen_at": instant(worker.seen_at),
    }

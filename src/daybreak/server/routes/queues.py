"""`/queues`: what waits in each queue, and its settings."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from daybreak.api.oldest import oldest_queued
from daybreak.api.queue_info import QueueInfo, read_queues
from daybreak.api.views.queue import queue_view
from daybreak.api.views.scalars import instant
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import State
from daybreak.core.units import moment
from daybreak.policy.admit import check_name
from daybreak.server.bodies.queues import QueueBody, QueueChanges, QueueList
from daybreak.server.changes import changes_of
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("queues")


@routes.get("/queues", may("read"), answer=QueueList, summary="List queues")
async def list_queues(call: Call[None, None]) -> Any:
    """All queues that have settings or jobs, and that the caller may use."""
    client = await call.client()
    found = [queue for queue in await read_queues(client) if call.caller.may_use(queue.name)]
    return {"queues": [await _view(client, queue) for queue in found]}


@routes.get("/queues/{name}", may("read"), answer=QueueBody, summary="One queue")
async def show_queue(call: Call[None, None]) -> Any:
    """The settings of a queue, and its jobs by state, priority and task. `by_priority` has every level from 0 to 10."""
    call.check_queue(call.path["name"])
    client = await call.client()
    return await _view(client, await _found(client, call.path["name"]))


@routes.patch("/queues/{name}", may("admin"), body=QueueChanges, answer=QueueBody, summary="Change a queue")
async def change_queue(call: Call[None, QueueChanges]) -> Any:
    """The change takes effect at the next claim, in every process. A queue can be set before its first job."""
    return await _changed(call, changes_of(call.body))


@routes.post("/queues/{name}/pause", may("admin"), answer=QueueBody, summary="Pause a queue")
async def pause_queue(call: Call[None, None]) -> Any:
    """Workers claim no more jobs from it; running jobs continue."""
    return await _changed(call, {"paused": True})


@routes.post("/queues/{name}/resume", may("admin"), answer=QueueBody, summary="Resume a paused queue")
async def resume_queue(call: Call[None, None]) -> Any:
    """Workers claim from it again, at once."""
    call.check_queue(call.path["name"])
    await _found(await call.client(), call.path["name"])
    return await _changed(call, {"paused": False})


async def _changed(call: Call[Any, Any], changes: dict[str, Any]) -> dict[str, Any]:
    name = call.path["name"]
    call.check_queue(name)
    check_name("queue", name)
    client = await call.client()
    await client.set_queue(name, **changes)
    return await _view(client, await _found(client, name))


async def _found(client: Client, name: str) -> QueueInfo:
    queues = await read_queues(client)
    for queue in queues:
        if queue.name == name:
            return queue
    hint = closest(name, [queue.name for queue in queues])
    raise Problem(
        NOT_FOUND,
        f"no queue named {name!r}: it has neither jobs nor settings",
        hint=f"did you mean {hint!r}?" if hint else "",
    )


async def _view(client: Client, queue: QueueInfo) -> dict[str, Any]:
    oldest = await oldest_queued(client, queue.name) if queue.states.get(State.QUEUED) else None
    return {
        **queue_view(queue),
        "depth": queue.waiting,
        "running": queue.states.get(State.RUNNING, 0),
        "oldest_at": instant(oldest),
        "oldest_wait": _waited(client, oldest),
    }


def _waited(client: Client, since: datetime | None) -> float | None:
    if since is None:
        return None
    return max(moment(client.wall()) - since, timedelta()).total_seconds()

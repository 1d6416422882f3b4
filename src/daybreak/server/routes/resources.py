"""`/resources`: what jobs share."""

from __future__ import annotations

from typing import Any

from daybreak.api.resources import ResourceInfo, all_resources, info_of, reset_resource, set_resource, settings_in
from daybreak.api.views.resource import resource_view
from daybreak.client.client import Client
from daybreak.config import closest
from daybreak.core.model import Breaker, State
from daybreak.core.units import duration
from daybreak.policy.resources import LOCK_PREFIX
from daybreak.server.bodies.resources import (
    BreakerChanges,
    ResourceBody,
    ResourceChanges,
    ResourceDetail,
    ResourceList,
    ResourceQuery,
)
from daybreak.server.changes import changes_of
from daybreak.server.problems import NOT_FOUND, Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("resources")
_READ = may("read", needs_all_queues=True)
_ADMIN = may("admin", needs_all_queues=True)


@routes.get("/resources", _READ, query=ResourceQuery, answer=ResourceList, summary="List resources")
async def list_resources(call: Call[ResourceQuery, None]) -> Any:
    """Every resource that has settings, holders or waiting jobs: its limits, its use, and the state of its breaker."""
    found = await all_resources(await call.client())
    shown = [info for info in found if call.query.locks or not info.name.startswith(LOCK_PREFIX)]
    return {"resources": [resource_view(info) for info in shown]}


@routes.get("/resources/{name}", _READ, answer=ResourceDetail, summary="One resource, and who holds it")
async def show_resource(call: Call[None, None]) -> Any:
    """The holders are the ids of running jobs."""
    client = await call.client()
    info = await _found(client, call.path["name"])
    holders = [
        job.id async for job in client.find_all(state=State.RUNNING)
        if any(need.resource == info.name for need in job.spec.options.resources)
    ]  # fmt: skip
    return {**resource_view(info), "holders": holders}


@routes.patch("/resources/{name}", _ADMIN, body=ResourceChanges, answer=ResourceBody, summary="Change a resource")
async def change_resource(call: Call[None, ResourceChanges]) -> Any:
    """These settings override what the code declares, until the resource is reset."""
    client, name = await call.client(), call.path["name"]
    changes = changes_of(call.body)
    if "breaker" in changes:
        changes["breaker"] = await _breaker(client, name, changes["breaker"])
    # In `set_resource`, "none" removes a limit, and None leaves it unchanged.
    await set_resource(client, name, **{key: "none" if value is None else value for key, value in changes.items()})
    return resource_view(await info_of(client, name))


@routes.post(
    "/resources/{name}/reset", _ADMIN, answer=ResourceBody, summary="Reset a resource to the settings in the code"
)
async def reset(call: Call[None, None]) -> Any:
    """Removes the settings that a person has made, and closes the breaker."""
    client, name = await call.client(), call.path["name"]
    await _found(client, name)
    await reset_resource(client, name)
    return resource_view(await info_of(client, name))


async def _breaker(client: Client, name: str, change: BreakerChanges | bool | None) -> Breaker | bool:
    if change is None:
        return False
    if isinstance(change, bool):
        if not change:
            return False
        return (await settings_in(client, name)).breaker or Breaker()
    return Breaker(
        failures=change.failures,
        successes=change.successes,
        open_for=duration(change.open_for, "open_for"),
        probes=change.probes,
        forget_after=None if change.forget_after is None else duration(change.forget_after, "forget_after"),
    )


async def _found(client: Client, name: str) -> ResourceInfo:
    known = [usage.name for usage in await client.store.usage()]
    if name not in known:
        hint = closest(name, known)
        raise Problem(NOT_FOUND, f"no resource named {name!r}", hint=f"did you mean {hint!r}?" if hint else "")
    return await info_of(client, name)

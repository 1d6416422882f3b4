"""`/locks`: who holds a lock, who waits for it."""

from __future__ import annotations

from typing import Any

from daybreak.api.locks import lock_job
from daybreak.api.locks.lock_job import all_waiters
from daybreak.api.views.lock import lock_view
from daybreak.client.leases import lease_of
from daybreak.core.errors import JobNotFound
from daybreak.core.model import State
from daybreak.server.bodies.locks import LockList, LockQuery, ReleaseBody, Released
from daybreak.server.problems import CONFLICT, FORBIDDEN, Problem
from daybreak.server.routing import Call, Routes, may

routes = Routes("locks")


@routes.get(
    "/locks", may("read", needs_all_queues=True), query=LockQuery, answer=LockList, summary="List locks and waiters"
)  # fmt: skip
async def list_locks(call: Call[LockQuery, None]) -> Any:
    """With a name, only the holder of that lock and its waiters."""
    found = await all_waiters(await call.client())
    name = call.query.name
    return {"locks": [lock_view(one) for one in found if name is None or name in one.locks]}


@routes.post(
    "/locks/{id}/release", may("admin", needs_all_queues=True), body=ReleaseBody, body_is_optional=True,
    answer=Released, changes_job=True, summary="Release a held lock",
)  # fmt: skip
async def release_lock(call: Call[None, ReleaseBody]) -> Any:
    """`id` is the job of the holder, from the list. If the lock has another holder by now, that holder keeps it. The
    released holder is notified that it lost the lock."""
    client = await call.client()
    job = await client.get(call.path["id"])
    if job.spec.queue != lock_job.QUEUE or job.spec.holder is None:
        raise JobNotFound(job.id)
    owner = call.body.owner
    if owner is not None and job.spec.owner != owner:
        raise Problem(FORBIDDEN, f"{job.spec.owner!r} holds the lock, not {owner!r}")
    if job.state is not State.RUNNING:
        if call.takes_over is not None and job.is_final:
            return {"released": list(lock_job.names_of(job))}
        raise Problem(CONFLICT, f"job {job.id} is {job.state.value}: it holds no lock now", more={"job": job.id})
    forced_by = "" if owner is not None else client.by
    if not await lock_job.give_back(client, lease_of(job), forced_by=forced_by):
        raise Problem(CONFLICT, f"job {job.id} has just lost the lock", more={"job": job.id})
    return {"released": list(lock_job.names_of(job))}

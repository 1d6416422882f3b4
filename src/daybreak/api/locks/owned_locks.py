"""Locks that belong to an owner instead of a process: any process can take, extend and release them for the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from daybreak.api.locks import lock_job
from daybreak.api.locks.lock_job import check_names
from daybreak.api.locks.lock_wait import LockWait
from daybreak.client.client import Client
from daybreak.client.leases import lease_of
from daybreak.core.errors import BadInput, WrongState
from daybreak.core.model import Job, Lease
from daybreak.policy.admit import NAME_LIMIT, check_name
from daybreak.services.runner import default_services, run
from daybreak.system.ports import RealWorld

OWNER = "owner:"


async def take(
    client: Client,
    names: Sequence[str],
    owner: str,
    *,
    hold_for: timedelta,
    wait: timedelta | None,
    priority: object,
    id: str,  # noqa: A002
) -> Lease:
    """Take the locks for `hold_for`; the end of this process does not release them. If the owner holds them already,
    extend them to `hold_for` from now."""
    names = check_names(names)
    if not owner:
        raise BadInput("a lock that belongs to an owner needs the owner's name")
    check_name("owner", owner)
    if (held := await _held(client, names, owner)) is not None:
        lease = lease_of(held)
        if await lock_job.renew(client, lease, hold_for):
            return lease
    for other in await lock_job.holders(client, owner=owner):
        if both := sorted(set(names) & set(lock_job.names_of(other))):
            raise BadInput(
                f"{owner} already holds {', '.join(both)} together with other locks: release it first, then take all"
            )
    spec = lock_job.spec_for(
        client, id, lock_job.needs_of_locks(names), holder=OWNER + owner, owner=owner, priority=priority, wait=wait,
        hold_for=hold_for, unique=f"{OWNER}{owner} {' '.join(names)}"[:NAME_LIMIT],
    )  # fmt: skip
    services = asyncio.create_task(run(default_services(client.store, RealWorld(), name=f"locks-{id}"), RealWorld()))
    try:  # the services free the locks of crashed holders, also where no worker runs
        return await LockWait(client, spec, wait, lock_job.resources_of(names)).until_granted({})
    finally:
        services.cancel()
        await asyncio.gather(services, return_exceptions=True)


async def extend(client: Client, names: Sequence[str], owner: str, hold_for: timedelta) -> Lease:
    job = await _own(client, check_names(names), owner)
    lease = lease_of(job)
    if not await lock_job.renew(client, lease, hold_for):
        raise WrongState(job.id, "lost", "the lock has expired, and another owner has it")
    return lease


async def release(client: Client, names: Sequence[str], owner: str | None) -> list[Job]:
    """Release the locks, and return their jobs. Without an owner, release them by force, whoever holds them."""
    names = check_names(names)
    held = [job for job in await lock_job.holders(client) if set(lock_job.names_of(job)) & set(names)]
    if owner is not None:
        others = [job for job in held if job.spec.owner != owner]
        held = [job for job in held if job.spec.owner == owner]
        if not held and others:
            raise WrongState(
                others[0].id,
                "running",
                f"{others[0].spec.owner} holds the lock, not {owner}; use --force to release it all the same",
            )
    return [job for job in held if await lock_job.give_back(client, lease_of(job), forced_by=_by(client, owner))]


def _by(client: Client, owner: str | None) -> str:
    return "" if owner is not None else client.by or "someone"


async def _own(client: Client, names: Sequence[str], owner: str) -> Job:
    job = await _held(client, names, owner)
    if job is None:
        raise BadInput(f"{owner} does not hold lock {', '.join(names)}")
    return job


async def _held(client: Client, names: Sequence[str], owner: str) -> Job | None:
    held = await lock_job.holders(client, owner=owner)
    mine = (job for job in held if job.spec.holder == OWNER + owner and set(names) <= set(lock_job.names_of(job)))
    return next(mine, None)

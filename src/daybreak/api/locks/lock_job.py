"""Represents a lock as a job: requests, renews and releases it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.api.resources import provide
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import Done, Failed, Failure, Job, JobSpec, Lease, Need, Options, Retry, State
from daybreak.core.units import priority as as_priority
from daybreak.policy.resources import LOCK_PREFIX, Resource, check_resource, needs_of, parse_shares
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Exchange, Inserted

QUEUE: Final = "lock"
TASK: Final = "lock"
NESTED: Final = "nested"  # the tag of locks whose caller holds other locks meanwhile
HOLDS: Final = "holds"  # the entry of `meta` that lists the jobs of those other locks
KEEP: Final = timedelta(days=1)
SHORTEST_WAIT: Final = timedelta(milliseconds=1)  # a free lock is granted at once, also with `wait` 0
ONCE: Final = Retry(attempts=1)


class Waiter(Struct, frozen=True, kw_only=True):
    """One holder of a lock, or one waiter for it."""

    job: str
    locks: tuple[str, ...]
    who: str
    state: State
    priority: int
    since: datetime
    fence: int
    until: datetime | None
    position: int | None = None


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        raise BadInput("a lock needs a name: app.lock('prod/network')")
    checked = tuple(check_resource(name) for name in names)
    if len(set(checked)) < len(checked):
        raise BadInput(f"lock {', '.join(checked)}: the same name is given twice")
    return tuple(sorted(checked))


def resources_of(names: Sequence[str]) -> list[Resource]:
    return [Resource(LOCK_PREFIX + name, slots=1) for name in names]


def needs_of_locks(names: Sequence[str]) -> tuple[Need, ...]:
    return needs_of(parse_shares(resources_of(names)))


def spec_for(
    client: Client,
    id: str,  # noqa: A002
    needs: tuple[Need, ...],
    *,
    holder: str,
    owner: str,
    priority: object,
    wait: timedelta | None,
    hold_for: timedelta,
    holds: Sequence[str] = (),
    unique: str | None = None,
) -> JobSpec:
    return JobSpec(
        id=id,
        task=TASK,
        queue=QUEUE,
        by=client.by,
        priority=as_priority(priority),
        owner=owner,
        holder=holder,
        hold_for=hold_for,
        unique=unique,
        tags=(NESTED,) if holds else (),
        meta={HOLDS: " ".join(holds)} if holds else {},
        options=Options(
            retry=ONCE,
            expires_in=None if wait is None else max(wait, SHORTEST_WAIT),
            keep_completed=KEEP,
            keep_failed=KEEP,
            resources=needs,
        ),
    )


async def request(client: Client, spec: JobSpec, declared: Sequence[Resource], provided: dict[str, object]) -> Inserted:
    """Join the queue of waiters. A lock that does not exist yet is created."""
    if new := [resource for resource in declared if provided.get(resource.name) != resource.settings]:
        await provide(client, new)
        provided.update((resource.name, resource.settings) for resource in new)
    [inserted] = await client.submit_many([spec])
    return inserted


def names_of(job: Job) -> tuple[str, ...]:
    return tuple(need.resource.removeprefix(LOCK_PREFIX) for need in job.spec.options.resources)


async def give_back(client: Client, lease: Lease, *, forced_by: str = "", held_for: float = 0.0) -> bool:
    """Release the lock. Returns False if it was lost or released by force before."""
    released = Failed(Failure(message=f"released by {forced_by}", verdict="permanent"))
    outcome = released if forced_by else Done(ran=held_for)
    settlement = settle(lease, outcome, chance=0.5, by=forced_by or lease.worker)
    if not (await client.store.exchange(Exchange(settle=[settlement]))).settled[0]:
        return False
    # The store accepts a second settlement as a repeat of the first. The job's state shows which one was first.
    [job] = await client.store.get([lease.job])
    return job is not None and job.state is settlement.state


async def renew(client: Client, lease: Lease, lease_for: timedelta) -> bool:
    """Extend the lease. Returns False if it was lost or cancelled."""
    [extended] = await client.store.extend([Beat(seq=lease.seq, fence=lease.fence, lease_for=lease_for, job=lease.job)])
    return extended.held and not extended.cancel


async def holders(client: Client, **where: Any) -> list[Job]:
    return [job async for job in client.find_all(queue=QUEUE, state=State.RUNNING, **where)]


async def waiters(client: Client, **where: Any) -> list[Job]:
    """The jobs of all waiters, in the order in which they will be served."""
    waiting = [job async for job in client.find_all(queue=QUEUE, state=State.BLOCKED, **where)]
    return sorted(waiting, key=lambda job: (job.priority, job.seq))


async def all_waiters(client: Client) -> list[Waiter]:
    """All holders, then all waiters in the order in which they will be served."""
    ahead: dict[str, int] = {}
    found = [waiter_of(job) for job in await holders(client)]
    for job in await waiters(client):
        position = ahead.get(job.blocked_on or "", 0)
        ahead[job.blocked_on or ""] = position + 1
        found.append(msgspec.structs.replace(waiter_of(job), position=position))
    return found


def waiter_of(job: Job) -> Waiter:
    return Waiter(
        job=job.id,
        locks=names_of(job),
        who=job.spec.owner or job.spec.holder or "",
        state=job.state,
        priority=job.priority,
        since=job.started_at or job.created_at,
        fence=job.fence,
        until=job.leased_until,
    )

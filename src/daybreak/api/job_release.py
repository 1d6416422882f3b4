"""Takes a running job away from its holder and returns it to its queue.

The release is a settlement under the job's present fence, so the holder can no longer report an outcome: its lease is
lost. If the process is killed before the settlement is committed, nothing has changed; a repeated release finds the
job in its queue."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.client.leases import lease_of
from daybreak.core.errors import WrongState
from daybreak.core.model import HandedBack, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Amendment, Exchange

# A job that was asked to stop or to suspend does so when it is released.
RELEASE_EVENTS: Final = frozenset({"released", "cancelled", "suspended"})


async def release_job(client: Client, job_id: str, *, charge: bool = False, note: str = "") -> Amendment:
    """Return a running job to its queue. With `charge` the interrupted attempt counts, without it does not. `refused`
    means that the job was not running any more. Raises JobNotFound, and WrongState for a lock."""
    job = await client.get(job_id)
    if job.state is not State.RUNNING:
        return Amendment(job.id, "refused", job.state)
    if job.spec.holder is not None:
        raise WrongState(job.id, "running", "it is a lock: release it with `daybreak locks release`")
    settlement = settle(lease_of(job), HandedBack(charged=charge), chance=0.5, by=client.by or "someone")
    await client.store.exchange(Exchange(settle=[replace(settlement, note=note)]))
    # The end of a job that was asked to stop or to suspend is recorded under the name of the person who asked.
    asked = {"cancelled"} if job.cancelling else {"suspended"} if job.suspending else set()
    # A second settlement under one fence is answered like a repeated one, so the job itself tells what happened.
    after = await client.get(job_id)
    is_released = any(
        event.n > job.revision and event.kind in RELEASE_EVENTS and (event.by == settlement.by or event.kind in asked)
        for event in await client.history(job_id)
    )
    return Amendment(job.id, "done" if is_released else "refused", after.state)

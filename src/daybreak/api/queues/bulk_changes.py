"""Changes of many items of a queue: retry those that failed, delete those in some states.

If a call is interrupted, the items that it has not reached are unchanged, and the same call continues with them. An
unfinished item is deleted in two steps, cancel and remove; between the two it is cancelled, and will never be taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from daybreak.api.hooks import ChangedFields, Hooks
from daybreak.api.job_changes import CHANGES, CHUNK, amend_ids, amend_paced
from daybreak.client.client import Client
from daybreak.core.errors import BadInput
from daybreak.core.model import FINAL, Job, State
from daybreak.store.protocol import Amendment
from daybreak.system.ports import World

_RETRIED: Final = ChangedFields(state=State.QUEUED)
_REMOVED: Final = ChangedFields()
CLEARABLE: Final = frozenset(State) - {State.RUNNING}


async def retry_failed(client: Client, hooks: Hooks, world: World, queue: str, every: timedelta | None) -> int:
    """Queue the failed items of a queue again, the most urgent and then the oldest first. Returns how many. With
    `every`, one by one, so long apart."""
    if every is None and not hooks.wants("retried"):
        return await client.amend_all("retry", queue=queue, state=State.FAILED)
    jobs = [job async for job in client.find_all(queue=queue, state=State.FAILED)]
    jobs.sort(key=lambda job: (job.priority, job.seq))
    if every is None:
        return await _amend(client, hooks, "retry", jobs)

    async def amend(job: Job) -> Amendment:
        [amendment] = await amend_ids(client, CHANGES["retry"], [job.id])
        if amendment.verdict == "done":
            hooks.changed("retried", job, by=client.by, **_RETRIED)
        return amendment

    verdicts = await amend_paced(
        client, amend, [job.id for job in jobs], every=every, sleep=world.sleep,
        still_matches=lambda job: job.state is State.FAILED and job.spec.queue == queue,
    )  # fmt: skip
    return verdicts.total()


def clearable_states(states: frozenset[State]) -> frozenset[State]:
    """The states that `clear` deletes; no states are all but running. BadInput if running is among them."""
    if State.RUNNING in states:
        raise BadInput(
            "clear('running'): somebody works on these items; take one away with queue.release(id), or cancel it with "
            "app.job(id).cancel()"
        )
    return states or CLEARABLE


async def clear(client: Client, hooks: Hooks, queue: str, states: frozenset[State]) -> int:
    """Delete the items of a queue that are in one of these states. Returns how many."""
    removed = 0
    waiting = states - FINAL
    if waiting:
        jobs = [job async for job in client.find_all(queue=queue, state=waiting)]
        removed += await _cancel_and_remove(client, hooks, jobs, states=waiting)
    ended = states & FINAL
    if ended and hooks.wants("removed"):
        jobs = [job async for job in client.find_all(queue=queue, state=ended)]
        removed += await _amend(client, hooks, "remove", jobs)
    elif ended:
        removed += await client.amend_all("remove", queue=queue, state=ended)
    return removed


async def _cancel_and_remove(client: Client, hooks: Hooks, jobs: Sequence[Job], states: frozenset[State]) -> int:
    removed = 0
    for start in range(0, len(jobs), CHUNK):
        chunk = jobs[start : start + CHUNK]
        now = await client.store.get([job.id for job in chunk])
        # One that was taken since is left alone: cancelling it would ask its holder to stop.
        still = [job for job in now if job is not None and job.state in states]
        cancelled = await amend_ids(client, CHANGES["cancel"], [job.id for job in still])
        gone = [job for job, answer in zip(still, cancelled, strict=True) if answer.verdict == "done"]
        removed += await _amend(client, hooks, "remove", gone)
    return removed


async def _amend(client: Client, hooks: Hooks, change: str, jobs: Sequence[Job]) -> int:
    """Change these jobs, and report each to the hooks. Returns how many were changed."""
    kind, fields = ("retried", _RETRIED) if change == "retry" else ("removed", _REMOVED)
    changed = 0
    for start in range(0, len(jobs), CHUNK):
        chunk = jobs[start : start + CHUNK]
        answers = await amend_ids(client, CHANGES[change], [job.id for job in chunk])
        for job, answer in zip(chunk, answers, strict=True):
            if answer.verdict == "done":
                changed += 1
                hooks.changed(kind, job, by=client.by, **fields)
    return changed

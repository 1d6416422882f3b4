"""`/jobs`: change jobs, one by one or many at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from daybreak.api.job_changes import CHANGES, Change, amend_ids, amend_matching, preview
from daybreak.api.job_filter import count_jobs
from daybreak.api.job_release import RELEASE_EVENTS, release_job
from daybreak.api.views.job import amendment_view
from daybreak.client.client import Client
from daybreak.core.errors import JobNotFound
from daybreak.core.model import State
from daybreak.policy.job_filter import JobFilter
from daybreak.server.bodies.job_changes import BulkAnswer, BulkBody, Changed, JobReleaseBody, NoteBody, PriorityBody
from daybreak.server.problems import CONFLICT, INVALID, Problem
from daybreak.server.replies import Reply
from daybreak.server.routes.jobs import filter_for, found_job, priority_of
from daybreak.server.routing import Call, Routes, may
from daybreak.store.protocol import Amendment

routes = Routes("jobs")


# -- one job -----------------------------------------------------------------------------------------------------------


@routes.post(
    "/jobs/{id}/cancel", may("submit"), body=NoteBody, body_is_optional=True, answer=Changed, changes_job=True,
    summary="End a job that has not ended yet",
)  # fmt: skip
async def cancel_job(call: Call[None, NoteBody]) -> Any:
    """`done`: it will never start. `requested`: it is running, was asked to stop, and will end as cancelled."""
    return await _change(call, "cancel", note=call.body.note)


@routes.post(
    "/jobs/{id}/retry", may("submit"), body=NoteBody, body_is_optional=True, answer=Changed, changes_job=True,
    summary="Run a job again that has ended",
)  # fmt: skip
async def retry_job(call: Call[None, NoteBody]) -> Any:
    """It gets its full number of attempts again, and its history continues."""
    return await _change(call, "retry", note=call.body.note)


@routes.post(
    "/jobs/{id}/suspend", may("submit"), body=NoteBody, body_is_optional=True, answer=Changed, changes_job=True,
    summary="Hold a job until it is resumed",
)  # fmt: skip
async def suspend_job(call: Call[None, NoteBody]) -> Any:
    """A running job is asked to suspend; if it does not support that, it continues."""
    return await _change(call, "suspend", note=call.body.note)


@routes.post(
    "/jobs/{id}/resume", may("submit"), answer=Changed, changes_job=True, summary="Resume a suspended job"
)  # fmt: skip
async def resume_job(call: Call[None, None]) -> Any:
    """It takes its place in the queue by its original time of arrival."""
    return await _change(call, "resume")


@routes.post(
    "/jobs/{id}/start-now", may("submit"), body=NoteBody, body_is_optional=True, answer=Changed, changes_job=True,
    summary="Start a scheduled job before its time",
)  # fmt: skip
async def start_job_now(call: Call[None, NoteBody]) -> Any:
    """It is queued at once. This also ends the delay before the next attempt of a job that failed."""
    return await _change(call, "start-now", note=call.body.note)


@routes.post(
    "/jobs/{id}/release", may("admin"), body=JobReleaseBody, body_is_optional=True, answer=Changed, changes_job=True,
    summary="Return a running job to its queue",
)  # fmt: skip
async def release_running_job(call: Call[None, JobReleaseBody]) -> Any:
    """Its worker loses the lease: it stops the job, and its outcome is refused. The interrupted attempt counts only
    with `charge`."""
    client, job = await found_job(call)
    if await _has_happened(call, client, RELEASE_EVENTS):
        return amendment_view(Amendment(job.id, "done", job.state))
    answer = await release_job(client, job.id, charge=call.body.charge, note=call.body.note)
    if answer.verdict == "refused":
        state = answer.state.value if answer.state else "in another state"
        raise Problem(CONFLICT, f"job {job.id} is {state}: only running jobs can be released", more={"job": job.id})
    return amendment_view(answer)


@routes.put(
    "/jobs/{id}/priority", may("submit"), body=PriorityBody, answer=Changed, changes_job=True,
    summary="Move a waiting job to another priority",
)  # fmt: skip
async def set_priority(call: Call[None, PriorityBody]) -> Any:
    """A number from 0 to 10, where lower runs first, or a name. It keeps its time of arrival."""
    return await _change(call, "priority", priority=priority_of(call.body.priority))


@routes.delete(
    "/jobs/{id}", may("admin"), answer=None, status=204, changes_job=True, summary="Remove a job that has ended"
)  # fmt: skip
async def delete_job(call: Call[None, None]) -> Any:
    """Removes its result and its history too. An unfinished job must be cancelled first (409)."""
    try:
        await _change(call, "remove")
    except JobNotFound:
        if call.takes_over is None or not call.takes_over.revision:
            raise
        # The first request removed it, and its server was killed before it could answer.
    return Reply(None, 204)


async def _change(call: Call[Any, Any], name: str, *, priority: int | None = None, note: str = "") -> dict[str, Any]:
    change = CHANGES[name]
    client, job = await found_job(call)
    if await _has_happened(call, client, change.events):
        return amendment_view(Amendment(job.id, "done", job.state))
    [answer] = await amend_ids(client, change, [job.id], priority=priority, note=note)
    if answer.verdict == "missing":
        raise JobNotFound(job.id)
    if answer.verdict == "refused":
        possible = ", ".join(state.value for state in State if state in change.possible)
        state = answer.state.value if answer.state else "in another state"
        raise Problem(
            CONFLICT, f"job {job.id} is {state}: {name} is possible only for {possible} jobs", more={"job": job.id}
        )
    return amendment_view(answer)


async def _has_happened(call: Call[Any, Any], client: Client, kinds: frozenset[str]) -> bool:
    """Whether the request that this one takes over from made its change before its server was killed."""
    if call.takes_over is None or call.takes_over.revision is None:
        return False
    return any(
        event.n > call.takes_over.revision and event.kind in kinds and event.by == call.caller.by
        for event in await client.store.history(call.path["id"])
    )


# -- many jobs ---------------------------------------------------------------------------------------------------------


@routes.post(
    "/jobs/bulk", may("admin"), body=BulkBody, answer=BulkAnswer, summary="Change many jobs, by ids or by a filter"
)  # fmt: skip
async def change_jobs(call: Call[None, BulkBody]) -> Any:
    """A dry run changes nothing and returns how many jobs would be changed, as they are now."""
    body = call.body
    change = CHANGES[body.action]
    if (body.ids is None) == (body.filter is None):
        raise Problem(INVALID, "send either ids or a filter")
    if (body.action == "priority") != (body.priority is not None):
        raise Problem(INVALID, "the action 'priority' needs a priority, and no other action takes one")
    level = None if body.priority is None else priority_of(body.priority)
    if body.ids is not None:
        data = await _by_ids(call, change, list(dict.fromkeys(body.ids)), level)
    else:
        data = await _by_filter(call, change, level)
    return Reply(data, changed=not body.dry_run)


async def _by_ids(call: Call[None, BulkBody], change: Change, ids: list[str], level: int | None) -> dict[str, Any]:
    client, body = await call.client(), call.body
    jobs = [job for job in await client.store.get(ids) if job is not None]
    for queue in {job.spec.queue for job in jobs}:
        call.check_queue(queue)
    if body.dry_run:
        answers = await preview(client, change, ids)
    else:
        answers = await amend_ids(client, change, ids, priority=level, note=body.note)
    would = sum(answer.verdict in ("done", "requested") for answer in answers)
    return {
        "action": body.action,
        "dry_run": body.dry_run,
        "matching": would if body.dry_run else len(jobs),
        "changed": 0 if body.dry_run else would,
        "by_state": dict(Counter(job.state.value for job in jobs)),
        "jobs": [amendment_view(answer) for answer in answers],
    }


async def _by_filter(call: Call[None, BulkBody], change: Change, level: int | None) -> dict[str, Any]:
    client, body = await call.client(), call.body
    assert body.filter is not None
    wanted = filter_for(call, body.filter)
    if wanted.is_empty:
        raise Problem(INVALID, "the filter is empty and would select every job", hint="name at least a queue")
    if impossible := [state.value for state in wanted.states if state not in change.possible]:
        raise Problem(INVALID, f"{body.action} is not possible for {', '.join(impossible)} jobs")
    if not wanted.states:
        wanted = replace(wanted, states=tuple(state for state in State if state in change.usual))
    counts = await count_jobs(client, wanted)
    verdicts: Counter[str] = Counter()
    if not body.dry_run:
        verdicts = await _amend(call, client, change, wanted, level)
    return {
        "action": body.action,
        "dry_run": body.dry_run,
        "matching": sum(counts.values()),
        "changed": sum(verdicts.values()),
        "by_state": {state.value: n for state, n in counts.items()},
        "jobs": None,
    }


async def _amend(
    call: Call[None, BulkBody], client: Client, change: Change, wanted: JobFilter, level: int | None
) -> Counter[str]:
    """Change the jobs in chunks. With an idempotency key, the cursor is stored after each chunk, so that a server that
    takes over repeats at most one chunk."""
    before = call.takes_over
    held = call.held_key

    async def on_chunk(cursor: str | None) -> None:
        if held is not None:
            await held.renew(cursor=cursor)

    cursor = None if before is None else before.cursor
    return await amend_matching(
        client, change, wanted, priority=level, note=call.body.note, cursor=cursor, on_chunk=on_chunk
    )

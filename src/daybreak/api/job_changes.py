"""Changes that a person makes to jobs: to one job, to several by their ids, or to all that match a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.api.job_filter import find_all_jobs
from daybreak.client.client import Client, filter_of
from daybreak.client.job_logs import delete_logs
from daybreak.core.model import FINAL, UNFINISHED, WAITING, Job, State
from daybreak.policy.job_filter import JobFilter
from daybreak.store.protocol import Action, Amend, Amendment

CHUNK: Final = 500


class Change(Struct, frozen=True, kw_only=True):
    """A kind of change. It is possible in the `possible` states; a filter without states selects the `usual` states.
    `events` are the kinds of event that record the change in a job's history."""

    action: Action
    possible: frozenset[State]
    usual: frozenset[State]
    events: frozenset[str]


_NOT_SUSPENDED: Final = UNFINISHED - {State.SUSPENDED}

CHANGES: Final[dict[str, Change]] = {
    "cancel": Change(
        action="cancel", possible=UNFINISHED, usual=UNFINISHED, events=frozenset({"cancelled", "cancel_requested"})
    ),
    # Completed and cancelled jobs can be retried, but "retry all" means those that failed.
    "retry": Change(
        action="retry", possible=FINAL, usual=frozenset({State.FAILED}), events=frozenset({"retried"})
    ),
    "suspend": Change(
        action="suspend", possible=_NOT_SUSPENDED, usual=_NOT_SUSPENDED,
        events=frozenset({"suspended", "suspend_requested"}),
    ),
    # A running job can be resumed if its suspension was requested but has not happened yet.
    "resume": Change(
        action="resume", possible=frozenset({State.SUSPENDED, State.RUNNING}), usual=frozenset({State.SUSPENDED}),
        events=frozenset({"resumed"}),
    ),
    "start-now": Change(
        action="start", possible=frozenset({State.SCHEDULED}), usual=frozenset({State.SCHEDULED}),
        events=frozenset({"due"}),
    ),
    "remove": Change(action="remove", possible=FINAL, usual=FINAL, events=frozenset({"removed"})),
    "priority": Change(
        action="rerank", possible=WAITING, usual=WAITING, events=frozenset({"reprioritised"})
    ),
}  # fmt: skip


async def preview(client: Client, change: Change, ids: Sequence[str]) -> list[Amendment]:
    """Return what `amend_ids` would return for the jobs as they are now, without changing anything."""
    amendments: list[Amendment] = []
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        for id_, job in zip(chunk, await client.store.get(chunk), strict=True):
            if job is None:
                amendments.append(Amendment(id_, "missing"))
                continue
            is_running = job.state is State.RUNNING
            possible = job.state in change.possible
            if is_running and change.action == "resume":
                possible = job.suspending
            if not possible:
                amendments.append(Amendment(id_, "refused", job.state))
            elif is_running and change.action != "resume":
                amendments.append(Amendment(id_, "requested", job.state))
            else:
                amendments.append(Amendment(id_, "done", job.state))
    return amendments


async def amend_ids(
    client: Client, change: Change, ids: Sequence[str], *, priority: int | None = None, note: str = ""
) -> list[Amendment]:
    """Change these jobs. Returns one amendment per job, in the same order."""
    request = Amend(action=change.action, by=client.by, priority=priority, note=note)
    amendments: list[Amendment] = []
    for start in range(0, len(ids), CHUNK):
        chunk = replace(request, jobs=tuple(ids[start : start + CHUNK]))
        amendments += (await client.store.amend(chunk)).amendments
    if change.action == "remove":  # the janitor deletes the logs of jobs that are removed by a filter
        await delete_logs(client.store, [amendment.job for amendment in amendments if amendment.verdict == "done"])
    return amendments


async def amend_matching(
    client: Client,
    change: Change,
    job_filter: JobFilter,
    *,
    priority: int | None = None,
    note: str = "",
    cursor: str | None = None,
    on_chunk: Callable[[str | None], Awaitable[None]] | None = None,
) -> Counter[str]:
    """Change all jobs that match, in bounded chunks. Returns how many were changed, and for how many the change was
    requested.

    `on_chunk` gets the cursor of the next chunk after each chunk, so that another process can continue from there."""
    verdicts: Counter[str] = Counter()
    if job_filter.is_timed:
        return await _amend_timed(client, change, job_filter, priority=priority, note=note)
    step = Amend(
        action=change.action, by=client.by, filter=filter_of(**job_filter.where()), priority=priority, note=note,
        limit=CHUNK, cursor=cursor,
    )  # fmt: skip
    while True:
        amended = await client.store.amend(step)
        verdicts.update(amendment.verdict for amendment in amended.amendments)
        if amended.cursor is None:
            return verdicts
        if on_chunk is not None:
            await on_chunk(amended.cursor)
        step = replace(step, cursor=amended.cursor)


async def amend_paced(
    client: Client,
    amend: Callable[[Job], Awaitable[Amendment]],
    ids: Sequence[str],
    *,
    every: timedelta,
    still_matches: Callable[[Job], bool],
    sleep: Callable[[timedelta], Awaitable[None]],
) -> Counter[str]:
    """Change these jobs one by one, with a pause after each. Each job is read again just before its change, and one
    that no longer matches is left alone. If this is interrupted, the others are unchanged: the same call continues."""
    verdicts: Counter[str] = Counter()
    is_first = True
    for job_id in ids:
        if not is_first:
            await sleep(every)
        [job] = await client.store.get([job_id])
        is_first = False
        if job is not None and still_matches(job):
            verdict = (await amend(job)).verdict
            if verdict in ("done", "requested"):
                verdicts[verdict] += 1
    return verdicts


async def _amend_timed(
    client: Client, change: Change, job_filter: JobFilter, *, priority: int | None, note: str
) -> Counter[str]:
    """Find the jobs first, then change them. Each chunk is read again just before it is changed, and a job that no
    longer matches stays unchanged."""
    ids = [job.id async for job in find_all_jobs(client, job_filter)]
    verdicts: Counter[str] = Counter()
    for start in range(0, len(ids), CHUNK):
        jobs = [job for job in await client.store.get(ids[start : start + CHUNK]) if job is not None]
        matching = [job.id for job in jobs if job.state in job_filter.states and job_filter.is_within(job)]
        amendments = await amend_ids(client, change, matching, priority=priority, note=note)
        verdicts.update(each.verdict for each in amendments if each.verdict in ("done", "requested"))
    return verdicts

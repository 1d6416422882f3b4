"""Changes of jobs by a person: one job, several by their ids, or all that match a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.api.job_filter import JobFilter, find_all_jobs
from daybreak.client.client import Client, filter_of
from daybreak.core.model import FINAL, UNFINISHED, WAITING, State
from daybreak.store.protocol import Action, Amend, Amendment

CHUNK: Final = 500


class Change(Struct, frozen=True, kw_only=True):
    """What is done to jobs. It can be done in the `possible` states; a filter without states means the `usual` ones.
    `events` are the kinds of event that tell of it in a job's history."""

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
    # A running job can be resumed too, if it was only asked to pause.
    "resume": Change(
        action="resume", possible=frozenset({State.SUSPENDED, State.RUNNING}), usual=frozenset({State.SUSPENDED}),
        events=frozenset({"resumed"}),
    ),
    "remove": Change(action="remove", possible=FINAL, usual=FINAL, events=frozenset({"removed"})),
    "priority": Change(
        action="rerank", possible=WAITING, usual=WAITING, events=frozenset({"reprioritised"})
    ),
}  # fmt: skip


async def judge(client: Client, change: Change, ids: Sequence[str]) -> list[Amendment]:
    """What `amend_ids` would answer, as the jobs are now. Nothing is changed."""
    found: list[Amendment] = []
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        for id_, job in zip(chunk, await client.store.get(chunk), strict=True):
            if job is None:
                found.append(Amendment(id_, "missing"))
                continue
            is_running = job.state is State.RUNNING
            possible = job.state in change.possible
            if is_running and change.action == "resume":
                possible = job.suspending
            if not possible:
                found.append(Amendment(id_, "refused", job.state))
            elif is_running and change.action != "resume":
                found.append(Amendment(id_, "requested", job.state))
            else:
                found.append(Amendment(id_, "done", job.state))
    return found


async def amend_ids(
    client: Client, change: Change, ids: Sequence[str], *, priority: int | None = None, note: str = ""
) -> list[Amendment]:
    """Change these jobs. Each answers for itself, in the same order."""
    wanted = Amend(action=change.action, by=client.by, priority=priority, note=note)
    answers: list[Amendment] = []
    for start in range(0, len(ids), CHUNK):
        chunk = replace(wanted, jobs=tuple(ids[start : start + CHUNK]))
        answers += (await client.store.amend(chunk)).amendments
    return answers


async def amend_matching(
    client: Client,
    change: Change,
    wanted: JobFilter,
    *,
    priority: int | None = None,
    note: str = "",
    cursor: str | None = None,
    on_chunk: Callable[[str | None], Awaitable[None]] | None = None,
) -> Counter[str]:
    """Change all jobs that match, in bounded chunks; how many were changed, and how many were asked to.

    `on_chunk` is told after each chunk where the next one begins, so that another process can go on from `cursor`."""
    verdicts: Counter[str] = Counter()
    if wanted.is_timed:
        return await _amend_timed(client, change, wanted, priority=priority, note=note)
    step = Amend(
        action=change.action, by=client.by, filter=filter_of(**wanted.where()), priority=priority, note=note,
        limit=CHUNK, cursor=cursor,
    )  # fmt: skip
    while True:
        amended = await client.store.amend(step)
        verdicts.update(answer.verdict for answer in amended.amendments)
        if amended.cursor is None:
            return verdicts
        if on_chunk is not None:
            await on_chunk(amended.cursor)
        step = replace(step, cursor=amended.cursor)


async def _amend_timed(
    client: Client, change: Change, wanted: JobFilter, *, priority: int | None, note: str
) -> Counter[str]:
    """Find the jobs first, then change them. A job that has moved on since it was found is left alone: each chunk is
    looked at again just before it is changed."""
    ids = [job.id async for job in find_all_jobs(client, wanted)]
    verdicts: Counter[str] = Counter()
    for start in range(0, len(ids), CHUNK):
        found = [job for job in await client.store.get(ids[start : start + CHUNK]) if job is not None]
        meant = [job.id for job in found if job.state in wanted.states and wanted.is_within(job)]
        answers = await amend_ids(client, change, meant, priority=priority, note=note)
        verdicts.update(answer.verdict for answer in answers if answer.verdict in ("done", "requested"))
    return verdicts

"""Changes of sagas, each one `put` by compare-and-set: several processes may make them at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from daybreak.client.client import Client
from daybreak.client.saga_record import (
    BadUpdate,
    Saga,
    StoredSaga,
    job_of,
    merge,
    read_outlines,
    read_saga,
    step_key,
    write_saga,
)
from daybreak.core.errors import KeyConflict, RecordChanged, Refused, SagaNotFound
from daybreak.core.model import Job, JobSpec, State
from daybreak.core.units import moment
from daybreak.policy import sagas as policy
from daybreak.policy.admit import admit
from daybreak.policy.sagas import Decision, JobEnd, NextJob
from daybreak.store.protocol import Amend, Store

TRIES: Final = 50


async def start_saga(client: Client, run_id: str, saga: Saga, first: JobSpec) -> bool:
    """Write a new saga with its first job. False if the same saga was started before under this id; KeyConflict if it
    was another one, or one whose record is no longer kept."""
    admit(first, client.store.traits.features)
    await _refuse_forgotten(client, run_id, len(saga.definition))
    if await write_saga(client.store, run_id, saga, 0, [first]):
        return True
    found = await read_saga(client.store, run_id)
    if found is not None and found.saga.started_with != saga.started_with:
        raise KeyConflict(
            run_id,
            "",
            f"saga {run_id!r} was started with other steps or another context",
            advice="start this one under another id",
        )
    return False


async def _refuse_forgotten(client: Client, run_id: str, steps: int) -> None:
    """The keys of jobs can outlive the record of their saga. A new saga of this id would wait for jobs that the store
    refuses to make a second time."""
    numbers = [(step, is_undo) for step in range(steps) for is_undo in (False, True)]
    keys = [step_key(run_id, NextJob(step=step, is_undo=is_undo)) for step, is_undo in numbers]
    known = next((found for found in await client.store.known_keys(keys) if found is not None), None)
    # Who starts the same saga at this moment has written its record together with the key.
    if known is not None and await read_saga(client.store, run_id) is None:
        raise KeyConflict(
            run_id,
            "",
            f"saga {run_id!r} has run before: its record is no longer kept, but the store knows its jobs",
            advice="start this one under another id",
        )


async def find_saga(client: Client, run_id: str) -> StoredSaga:
    """The saga with this id; SagaNotFound names the closest one."""
    found = await read_saga(client.store, run_id)
    if found is None:
        raise SagaNotFound(run_id, [one.id for one in await read_outlines(client.store)])
    return found


async def cancel_saga(client: Client, run_id: str) -> Saga:
    """Stop the running step, and undo the completed ones. Raises Refused if the saga has completed. One that is being
    compensated already stays as it is."""

    def cancelled(found: StoredSaga) -> Saga | None:
        if found.saga.progress.phase == "completed":
            raise Refused(f"saga {run_id!r} has completed: it can no longer be cancelled")
        progress = policy.cancel(found.saga.progress, client.by)
        return None if progress in (None, found.saga.progress) else replace(found.saga, progress=progress)

    saga = await _change(client, run_id, lambda found: (cancelled(found), None))
    await stop_step(client.store, saga, by=client.by)
    return saga


async def stop_step(store: Store, saga: Saga, *, by: str) -> None:
    """Cancel the running step of a saga that was cancelled. May be repeated."""
    progress = saga.progress
    if progress.phase == "forward" and progress.cancelled_by is not None and progress.current_job:
        await store.amend(Amend(action="cancel", by=by, jobs=(progress.current_job,), note="its saga was cancelled"))


async def resume_saga(client: Client, run_id: str) -> Saga:
    """Try again to undo the step at which a saga is stuck. Raises Refused if it is not stuck."""

    def resumed(found: StoredSaga) -> tuple[Saga, JobSpec | None]:
        new_id = client.new_id()
        decision = policy.resume(found.saga.progress, new_id, moment(client.wall()))
        if decision is None:
            raise Refused(f"saga {run_id!r} is {found.saga.progress.phase}: only one that is stuck can be resumed")
        return _decided(found, found.saga, decision, new_id)

    return await _change(client, run_id, resumed)


async def drive_saga(client: Client, run_id: str, job_id: str | None = None) -> Saga | None:
    """Do what follows from the end of a job of this saga: by default of the one that it waits for. Nothing happens if
    that job has not ended. Returns the saga; None if there is none. May be repeated, by any process."""
    for _ in range(TRIES):
        found = await read_saga(client.store, run_id)
        if found is None or found.saga.moving:
            return None
        awaited = job_id or found.saga.progress.current_job
        if not awaited:
            return found.saga
        [job] = await client.store.get([awaited])
        decided = _after(client, found, awaited, job)
        if decided is None:
            return found.saga
        saga, next_job = decided
        saga = replace(saga, changed_at=moment(client.wall()))
        if await write_saga(client.store, run_id, saga, found.revision, [] if next_job is None else [next_job]):
            return saga
    raise RecordChanged("saga", run_id)


def _after(
    client: Client, found: StoredSaga, awaited: str, job: Job | None
) -> tuple[Saga, JobSpec | None] | None:  # fmt: skip
    if job is not None and not job.is_final:
        return None
    saga, end = _end_of(found.saga, awaited, job, client)
    new_id = client.new_id()
    decision = policy.after_end(saga.progress, end, new_id, undo_tries=saga.undo_tries)
    return None if decision is None else _decided(found, saga, decision, new_id)


def _end_of(saga: Saga, awaited: str, job: Job | None, client: Client) -> tuple[Saga, JobEnd]:
    """How the job ended, and the saga with the context after it."""
    now = moment(client.wall())
    if job is None:  # somebody removed it: whether it completed is no longer known
        return saga, JobEnd(job=awaited, state=State.FAILED, at=now, error="its job was removed")
    end = JobEnd(job=job.id, state=job.state, at=job.finished_at or now, error=_error_of(job))
    step = next((step for step in saga.progress.steps if step.job == job.id), None)
    if job.state is not State.COMPLETED or step is None or step.state not in ("running", "failed"):
        return saga, end
    try:
        return replace(saga, context=merge(saga.context, job.result, step.name)), end
    except BadUpdate as error:
        return saga, replace(end, refused=str(error))


def _error_of(job: Job) -> str:
    if job.state is State.CANCELLED:
        return "cancelled"
    reason = "" if job.reason is None else job.reason.value
    return ": ".join(part for part in (reason, "" if job.failure is None else str(job.failure)) if part)[:500]


def _decided(found: StoredSaga, saga: Saga, decision: Decision, new_id: str) -> tuple[Saga, JobSpec | None]:
    after = replace(saga, progress=decision.progress)
    return after, None if decision.job is None else job_of(found.id, after, decision.job, new_id)


async def _change(
    client: Client, run_id: str, change: Callable[[StoredSaga], tuple[Saga | None, JobSpec | None]]
) -> Saga:
    for _ in range(TRIES):
        found = await find_saga(client, run_id)
        if found.saga.moving:
            raise Refused(f"saga {run_id!r} is being moved to another store: change it there")
        saga, job = change(found)
        if saga is None:
            return found.saga
        saga = replace(saga, changed_at=moment(client.wall()))
        if await write_saga(client.store, run_id, saga, found.revision, [] if job is None else [job]):
            return saga
    raise RecordChanged("saga", run_id)

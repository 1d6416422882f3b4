"""What running jobs wait for: a record in the store for each wait inside a job that lasts longer than two seconds.

A job that waits for another keeps its slot. If all slots are held by such jobs, the awaited jobs can never start,
although every process is healthy; these records make that visible. A record is deleted when the wait ends. If its
process is killed first, the record stays until the janitor finds that the job no longer runs with that fence. Readers
compare the fence too, so a stale record is never mistaken for a wait of a later run."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from daybreak.core.model import Job, Put, Record, State
from daybreak.store.protocol import Store

KIND: Final = "wait"
_CHUNK: Final = 500


class Wait(Struct, frozen=True):
    """`job`, in the run with this fence, waits for the job `awaited`. Stored under the id of the waiting job."""

    job: str
    fence: int
    awaited: str
    is_async: bool = False

    def put(self) -> Put:
        return Put(kind=KIND, name=self.job, value=msgspec.json.encode(self))


async def all_waits(store: Store) -> list[tuple[Wait, Job, Job]]:
    """Every current wait: the wait, the job that waits, and the unfinished job that it waits for."""
    waits = [wait for record in await store.records(KIND) if (wait := _read(record)) is not None]
    found: list[tuple[Wait, Job, Job]] = []
    for start in range(0, len(waits), _CHUNK):
        chunk = waits[start : start + _CHUNK]
        jobs = await store.get([wait.job for wait in chunk])
        awaited = await store.get([wait.awaited for wait in chunk])
        found += [
            (wait, job, other)
            for wait, job, other in zip(chunk, jobs, awaited, strict=True)
            if job is not None and _is_on(wait, job) and other is not None and not other.is_final
        ]
    return found


async def forget_waits(store: Store) -> None:
    """Delete the records that killed processes left behind."""
    for record in await store.records(KIND):
        wait = _read(record)
        [job] = await store.get([record.name])
        if wait is None or job is None or not _is_on(wait, job):
            await store.put([Put(kind=KIND, name=record.name, value=None, expect=record.revision)])


def _read(record: Record) -> Wait | None:
    try:
        return msgspec.json.decode(record.value, type=Wait)
    except msgspec.MsgspecError:
        return None


def _is_on(wait: Wait, job: Job) -> bool:
    return job.state is State.RUNNING and job.fence == wait.fence

"""The current stack of a running job: asks its worker through the store, and waits for the answer.

| kind | name | value |
|---|---|---|
| `request` | `WORKER JOB` | the fence under which the job runs; wakes the worker |
| `stack` | the job | the worker's answer, at most 64 KiB |

A worker writes an answer and deletes its request in one transaction. It keeps few answers, each for a minute; the
janitor deletes what a killed process left."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.errors import StoreError, WrongState
from daybreak.core.model import Job, Put, Record, State
from daybreak.core.units import moment
from daybreak.store.protocol import REQUEST_KIND, Store, asked_worker, request_name
from daybreak.system.ports import World

STACK_KIND: Final = "stack"
MAX_STACK_BYTES: Final = 40 * 1024
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_PROCESSES: Final = 20
MAX_COMMAND_CHARS: Final = 500
KEEP_FOR: Final = timedelta(minutes=1)
ANSWER_WITHIN: Final = timedelta(seconds=5)
LOOK_INTERVAL: Final = timedelta(milliseconds=50)


class JobProcess(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process that a job has started. `memory` is its resident memory in bytes; None where it is unknown."""

    pid: int
    command: str
    memory: int | None = None


class JobStack(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a running job is now. `text` is its Python stack, the innermost call last, without local variables; it is
    empty if it could not be read, and `note` says why.

    `pid` and `memory` are those of the process that runs the job, and `shared` says that other jobs run in it too.
    `processes` are those that the job has started; for jobs that run commands, with their command lines."""

    job: str
    worker: str
    fence: int = 0
    attempt: int = 0
    host: str = ""
    pid: int | None = None
    memory: int | None = None
    shared: bool = False
    text: str = ""
    note: str = ""
    processes: tuple[JobProcess, ...] = ()
    taken_at: datetime | None = None
    answer: str = ""

    def __str__(self) -> str:
        return self.text or self.note


class StackRequest(Struct, frozen=True):
    """What a worker is asked: the stack of a job that it runs under this fence."""

    job: str
    fence: int
    asked_at: datetime | None = None


# -- asking ------------------------------------------------------------------------------------------------------------


async def ask_for_stack(
    store: Store, world: World, job: Job, get: Callable[[], Awaitable[Job]], within: timedelta = ANSWER_WITHIN
) -> JobStack:
    """Ask the worker of a running job for its stack. Raises WrongState if the job is not running.

    `get` reads the job again. If the worker does not answer, the note of what is returned says so."""
    if job.state is not State.RUNNING or job.worker is None:
        raise WrongState(job.id, job.state.value, "only a running job has a stack")
    if job.detached:
        raise WrongState(job.id, job.state.value, "its work goes on elsewhere, and no worker knows its stack")
    if not await store.records("worker", job.worker):
        return _without_answer(job, world, f"it is held by {job.worker}, which is no worker: a lock or a consumer")
    before = await _answer_of(store, job.id)
    request = Put(
        kind=REQUEST_KIND,
        name=request_name(job.worker, job.id),
        value=msgspec.json.encode(StackRequest(job.id, job.fence, moment(world.wall()))),
    )
    await store.put([request])
    deadline = world.steady() + within // timedelta(microseconds=1)
    while True:
        found = await _answer_of(store, job.id)
        if found is not None and found.fence == job.fence and (before is None or found.answer != before.answer):
            return found
        if world.steady() >= deadline:
            break
        await world.sleep(LOOK_INTERVAL)
    with contextlib.suppress(StoreError):  # otherwise the janitor deletes it
        await store.put([replace(request, value=None)])
    now = await get()
    if now.state is not State.RUNNING or now.fence != job.fence:
        raise WrongState(job.id, now.state.value, "it stopped running while its stack was asked for")
    seconds = within.total_seconds()
    return _without_answer(
        job,
        world,
        f"its worker did not answer within {seconds:g} s: it is overloaded, stopped, cut off from the store, or of an "
        "older version",
    )


def _without_answer(job: Job, world: World, note: str) -> JobStack:
    return JobStack(
        job=job.id,
        worker=job.worker or "",
        fence=job.fence,
        attempt=job.attempt,
        note=note,
        taken_at=moment(world.wall()),
    )


async def _answer_of(store: Store, job: str) -> JobStack | None:
    for record in await store.records(STACK_KIND, job):
        with contextlib.suppress(msgspec.MsgspecError):  # written by another version
            return msgspec.json.decode(record.value, type=JobStack)
    return None


# -- answering ---------------------------------------------------------------------------------------------------------


async def requests_for(store: Store, worker: str) -> list[tuple[Record, StackRequest | None]]:
    """The requests that wait for this worker; None for one that this version cannot read."""
    return [
        (record, _request_of(record))
        for record in await store.records(REQUEST_KIND)
        if asked_worker(record.name) == worker
    ]


def _request_of(record: Record) -> StackRequest | None:
    try:
        return msgspec.json.decode(record.value, type=StackRequest)
    except msgspec.MsgspecError:
        return None


def answer_put(stack: JobStack) -> Put:
    """The record of an answer, with as much of the stack's end as the limits allow."""
    processes = tuple(
        replace(process, command=process.command[:MAX_COMMAND_CHARS]) for process in stack.processes[:MAX_PROCESSES]
    )
    limit = MAX_STACK_BYTES
    while True:
        value = msgspec.json.encode(replace(stack, text=_end_of(stack.text, limit), processes=processes))
        if len(value) <= MAX_ANSWER_BYTES or not limit:
            return Put(kind=STACK_KIND, name=stack.job, value=value)
        limit //= 2


def _end_of(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[len(data) - limit :].decode("utf-8", "ignore")


def done_put(record: Record) -> Put:
    """Deletes a request, unless it was made again meanwhile."""
    return Put(kind=record.kind, name=record.name, value=None, expect=record.revision)


# -- expiry ------------------------------------------------------------------------------------------------------------


async def forget_stacks(store: Store, now: datetime) -> None:
    """Delete requests and answers that are older than a minute, or from a clock that is wrong by more than that: their
    worker or their reader was killed."""
    for kind in (REQUEST_KIND, STACK_KIND):
        old = [record for record in await store.records(kind) if _is_old(record, now)]
        if old:
            await store.put([done_put(record) for record in old])


class _Dated(Struct, frozen=True):
    asked_at: datetime | None = None
    taken_at: datetime | None = None


def _is_old(record: Record, now: datetime) -> bool:
    try:
        dated = msgspec.json.decode(record.value, type=_Dated)
    except msgspec.MsgspecError:
        return True
    at = dated.asked_at or dated.taken_at
    return at is None or at.tzinfo is None or abs(now - at) > KEEP_FOR

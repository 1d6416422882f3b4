"""What the store keeps of a saga: one record of kind `saga`, changed only by compare-and-set.

A saga that has not ended also has a mark, a small record of kind `active saga`, so that drivers find it without reading
all sagas. The mark is written with the record, and removed after the record says that the saga has ended."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.metadata import encode_meta
from daybreak.core.model import JobSpec, Options, Put, Record
from daybreak.core.units import bytes_text
from daybreak.policy.admit import digest
from daybreak.policy.sagas import UNDO_TRIES, NextJob, SagaProgress
from daybreak.store.protocol import SAGA_MARK_KIND, Store
from daybreak.values.result import spilled_digest

SAGA_KIND: Final = "saga"
MAX_ID: Final = 150  # it is part of the idempotency keys of its jobs
MAX_STEPS: Final = 100
MAX_CONTEXT: Final = 1024 * 1024 - 1024  # bytes, encoded; with the name of the parameter it must fit into a job
KEEP_COMPLETED: Final = timedelta(days=7)  # as jobs
KEEP_JOBS: Final = timedelta(days=7)  # at least, so that no job is gone before a driver has seen how it ended
KEEP_COMPENSATED: Final = timedelta(days=90)
MAX_FINISHED: Final = 10_000
MAX_FINISHED_SIZE: Final = 256 * 1024 * 1024  # bytes of their records
DELETED_AT_ONCE: Final = 500
READ_ALL_FROM: Final = 50  # sagas that have not ended
RUN_PREFIX: Final = "saga:"


class StepDefinition(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The jobs of one step, without their arguments: the context is passed as the parameter `takes`."""

    spec: JobSpec
    takes: str
    undo: JobSpec | None = None
    undo_takes: str = ""


class Saga(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A saga as the store keeps it. `started_with` is the digest of the definition and the first context: by it, a
    second start with the same id is known to be the same. `undo_tries` jobs may fail to undo a step."""

    name: str
    definition: tuple[StepDefinition, ...]
    context: msgspec.Raw
    progress: SagaProgress
    started_with: str
    created_at: datetime
    changed_at: datetime
    by: str = ""
    undo_tries: int = UNDO_TRIES
    moving: bool = False

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class StoredSaga(Struct, frozen=True):
    """A saga with its id and the revision of its record."""

    id: str
    saga: Saga
    revision: int


class _JobQueue(Struct, frozen=True):
    queue: str = "default"


class _StepQueues(Struct, frozen=True):
    spec: _JobQueue
    undo: _JobQueue | None = None


class _Outline(Struct, frozen=True):
    """What is read of a record to list it. The context and the jobs of the steps are skipped."""

    name: str
    definition: tuple[_StepQueues, ...]
    progress: SagaProgress
    created_at: datetime
    changed_at: datetime
    by: str = ""
    moving: bool = False


class SagaOutline(Struct, frozen=True, kw_only=True):
    """A saga without its context and its jobs: quick to read where there are thousands. `size` is that of its record,
    in bytes; `queues` are those of its jobs."""

    id: str
    name: str
    progress: SagaProgress
    queues: frozenset[str]
    created_at: datetime
    changed_at: datetime
    by: str
    moving: bool
    size: int
    revision: int


def decode_saga(record: Record) -> StoredSaga:
    """The saga of a record. Raises msgspec.MsgspecError or ValueError if another version wrote it."""
    found = msgspec.json.decode(record.value, type=Saga)
    return StoredSaga(record.name, replace(found, context=found.context.copy()), record.revision)


def queues_of(definition: Iterable[StepDefinition]) -> frozenset[str]:
    """The queues of all jobs that these steps may submit."""
    return frozenset(job.queue for step in definition for job in (step.spec, step.undo) if job is not None)


async def read_saga(store: Store, run_id: str) -> StoredSaga | None:
    """The saga with this id; None if there is none."""
    for record in await store.records(SAGA_KIND, run_id):
        return decode_saga(record)
    return None


async def read_sagas(store: Store) -> list[StoredSaga]:
    """All sagas, the newest first. One that another version wrote, and this one cannot read, is left out."""
    found = []
    for record in await store.records(SAGA_KIND):
        try:
            found.append(decode_saga(record))
        except (msgspec.MsgspecError, ValueError):
            continue
    return sorted(found, key=lambda one: (one.saga.created_at, one.id), reverse=True)


async def read_outlines(store: Store) -> list[SagaOutline]:
    """The outlines of all sagas, the newest first. One that another version wrote, and this one cannot read, is left
    out."""
    found = []
    for record in await store.records(SAGA_KIND):
        try:
            found.append(_outline(record))
        except (msgspec.MsgspecError, ValueError):
            continue
    return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)


async def read_unfinished(store: Store) -> list[SagaOutline]:
    """The outlines of the sagas that have not ended, the newest first. A few are read one by one, so that thousands
    that have ended are not read with them."""
    marks = await store.records(SAGA_MARK_KIND)
    if len(marks) > READ_ALL_FROM:
        return [one for one in await read_outlines(store) if not one.progress.is_finished]
    found = []
    for mark in marks:
        for record in await store.records(SAGA_KIND, mark.name):
            with contextlib.suppress(msgspec.MsgspecError, ValueError):
                found.append(_outline(record))
    unfinished = [one for one in found if not one.progress.is_finished]
    return sorted(unfinished, key=lambda one: (one.created_at, one.id), reverse=True)


def _outline(record: Record) -> SagaOutline:
    read = msgspec.json.decode(record.value, type=_Outline)
    jobs = (job for step in read.definition for job in (step.spec, step.undo) if job is not None)
    return SagaOutline(
        id=record.name, name=read.name, progress=read.progress, queues=frozenset(job.queue for job in jobs),
        created_at=read.created_at, changed_at=read.changed_at, by=read.by, moving=read.moving,
        size=len(record.value), revision=record.revision,
    )  # fmt: skip


async def write_saga(store: Store, run_id: str, saga: Saga, expect: int, jobs: Sequence[JobSpec] = ()) -> bool:
    """Write the record with its jobs, if its revision is still the expected one. Its mark is written if it has none,
    and removed if the saga has ended; a process that is killed before that leaves it to the next sweep."""
    tells = "saga_stuck" if saga.progress.phase == "stuck" else ""
    record = Put(
        kind=SAGA_KIND, name=run_id, value=saga.encoded(), expect=expect, inserts=tuple(jobs), tells=tells, by=saga.by
    )
    puts = (
        [record]
        if saga.progress.is_finished
        else [record, Put(kind=SAGA_MARK_KIND, name=run_id, value=b"{}", expect=0)]
    )
    written = (await store.put(puts))[0]
    if written is not None and saga.progress.is_finished:
        await forget_mark(store, run_id)
    return written is not None


async def forget_mark(store: Store, run_id: str) -> None:
    """Remove the mark of a saga that has ended, unless it goes on by now: whoever continues it writes the mark anew."""
    for mark in await store.records(SAGA_MARK_KIND, run_id):
        found = await read_saga(store, run_id)
        if found is None or found.saga.progress.is_finished:
            await store.put([Put(kind=SAGA_MARK_KIND, name=run_id, value=None, expect=mark.revision)])


async def forget_sagas(store: Store, now: datetime) -> None:
    """Delete the records of sagas that ended long ago, and of those that have ended all but the latest MAX_FINISHED,
    or MAX_FINISHED_SIZE bytes. Sagas that have not ended stay, stuck ones too."""
    size = number = 0
    old = []
    for found in await read_outlines(store):
        if not found.progress.is_finished:
            continue
        number, size = number + 1, size + found.size
        keep = KEEP_COMPLETED if found.progress.phase == "completed" else KEEP_COMPENSATED
        if number > MAX_FINISHED or size > MAX_FINISHED_SIZE or found.changed_at < now - keep:
            old.append(Put(kind=SAGA_KIND, name=found.id, value=None, expect=found.revision))
    for start in range(0, len(old), DELETED_AT_ONCE):
        await store.put(old[start : start + DELETED_AT_ONCE])


# -- its jobs ----------------------------------------------------------------------------------------------------------


def run_label(run_id: str) -> str:
    """The run that the jobs of a saga name."""
    return RUN_PREFIX + run_id


def saga_of_label(label: str | None) -> str | None:
    """The saga of a job that names this run; None if it belongs to none."""
    return label[len(RUN_PREFIX) :] if label is not None and label.startswith(RUN_PREFIX) else None


def step_key(run_id: str, job: NextJob) -> str:
    """The idempotency key of the job of a step."""
    return f"saga/{run_id}/{'undo-' if job.is_undo else ''}{job.step + 1}/{job.number}"


def job_of(run_id: str, saga: Saga, job: NextJob, new_id: str) -> JobSpec:
    """The job of a step, or of its undo, with the present context."""
    definition, step = saga.definition[job.step], saga.progress.steps[job.step]
    spec, takes = (definition.undo, definition.undo_takes) if job.is_undo else (definition.spec, definition.takes)
    assert spec is not None
    named = {"saga": run_id, "saga_name": saga.name, "step": step.name, **({"undo": True} if job.is_undo else {})}
    made = replace(
        spec,
        id=new_id,
        args=msgspec.json.encode({takes: saga.context} if takes else {}),
        key=step_key(run_id, job),
        run=run_label(run_id),
        by=f"saga {run_id}",
        delay=job.delay or None,
        options=_kept_long_enough(spec.options),
        meta={**spec.meta, **encode_meta(named)},
    )
    return replace(made, digest=digest(made))


def _kept_long_enough(options: Options) -> Options:
    """The options with a longer `keep` if theirs is too short. A job that was purged counts as failed, so what it did
    would not be undone."""
    completed, failed = options.keep_completed, options.keep_failed
    return replace(
        options,
        keep_completed=None if completed is None else max(completed, KEEP_JOBS),
        keep_failed=None if failed is None else max(failed, KEEP_JOBS),
    )


def definition_digest(name: str, definition: tuple[StepDefinition, ...], context: bytes) -> str:
    """Equal for the same steps with the same options and the same first context."""
    content = msgspec.json.encode([name, definition, msgspec.Raw(context)], order="deterministic")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# -- the context -------------------------------------------------------------------------------------------------------


class BadUpdate(ValueError):
    """What a step returned cannot be merged into the context."""


def merge(context: msgspec.Raw, result: bytes | None, step: str) -> msgspec.Raw:
    """The context after a step. The entries of a dict replace those of the context; nothing changes for None; anything
    else becomes the entry with the name of the step. Raises BadUpdate if the context becomes too large."""
    if result is None or result == b"null":
        return context
    if spilled_digest(result) is not None:
        raise BadUpdate("returned too much for the context of a saga: return a File, or where the data is")
    update = _entries(msgspec.Raw(result))
    entries = {**(_entries(context) or {}), **({step: msgspec.Raw(result)} if update is None else update)}
    written: Any = {"$": ["dict", entries]} if "$" in entries else entries
    merged = msgspec.json.encode(written)
    if len(merged) > MAX_CONTEXT:
        raise BadUpdate(
            f"with what it returned, the context of the saga has {bytes_text(len(merged))}, the limit is "
            f"{bytes_text(MAX_CONTEXT)}: return a File, or where the data is"
        )
    return msgspec.Raw(merged)


def _entries(encoded: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """The entries of an encoded dict; None if it is something else."""
    try:
        entries = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
        if "$" not in entries:
            return entries
        tag, content = msgspec.json.decode(entries["$"], type=tuple[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return None
    if tag == "any":
        return _entries(content)
    return msgspec.json.decode(content, type=dict[str, msgspec.Raw]) if tag == "dict" else None

"""Pack and adopt: read jobs for another store, and take over jobs of another store as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from daybreak.core.flights import flight_of
from daybreak.core.model import FINAL, UNFINISHED, Job, State
from daybreak.core.rank import rank_of
from daybreak.core.units import micros, moment
from daybreak.store.protocol import Inserted, Moved, Verdict, keep_until
from daybreak.stores.kernel import landings, moves
from daybreak.stores.kernel.row import WALL, Row
from daybreak.stores.kernel.transaction import Transaction


def pack(row: Row, keys: Mapping[str, str], holder: int | None, offset: int) -> Moved:
    """A job for another store. `holder` is the job that has its unique name; `offset` is by how much wall time is ahead
    of this store's steady time, which means nothing to another store."""
    job = row.as_job()
    if row.expires is not None and offset:
        job = replace(job, expires_at=moment(row.expires + offset))
    if row.due is not None and row.state in (State.SCHEDULED, State.SUSPENDED):
        job = replace(job, run_at=moment(row.due if row.clock == WALL else row.due + offset))
    gave_up = row.unique is not None and row.state in UNFINISHED and holder != row.seq
    return Moved(job, row.events(), dict(keys), holds_name=not gave_up)


def adopt(tx: Transaction, moved: Sequence[Moved], by: str) -> list[Inserted]:
    """Take over jobs, each with its own verdict."""
    tx.lock_names("key", {key for one in moved for key in one.keys})
    tx.lock_names("unique", {one.job.spec.unique for one in moved if one.job.spec.unique is not None})
    return [_find_conflict(tx, one) or _adopt(tx, one, by) for one in moved]


def _find_conflict(tx: Transaction, moved: Moved) -> Inserted | None:
    job, spec = moved.job, moved.job.spec
    tx.write()
    if (seq := tx.seqs_of([spec.id]).get(spec.id)) is not None and (there := tx.peek(seq)) is not None:
        return Inserted(Verdict.DUPLICATE, spec.id, there.seq, there.state, "id")
    for entry in tx.keys_of(list(moved.keys)).values() if moved.keys else ():
        if entry.job != spec.id:
            other = None if entry.seq is None else tx.peek(entry.seq)
            seq, state = (other.seq, other.state) if other else (0, None)
            return Inserted(Verdict.CONFLICT, entry.job, seq, state, "key")
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        seq = tx.holders_of([spec.unique]).get(spec.unique)
        holder = None if seq is None else tx.load_one(seq)
        if holder is not None and holder.state not in FINAL:
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
    return None


def _adopt(tx: Transaction, moved: Moved, by: str) -> Inserted:
    job, spec = moved.job, moved.job.spec
    row = _row_of(tx, job)
    for event in moved.history:
        row.history = row.lines.joined(row.history, row.lines.write(event))
    tx.add(row)
    for key, digest in moved.keys.items():  # including one that was left here when the job moved away
        tx.assign_key(key, digest, spec.id)
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        tx.take_name(spec.unique, row.seq)
    if row.state is State.BLOCKED:  # this store decides what the job waits for
        moves.settle_in(tx, row)
    tx.record(row, "moved", by, state=row.state, reason=job.reason, fence=row.fence, run_at=row.due_at)
    landings.join(tx, row)
    return Inserted(Verdict.NEW, spec.id, row.seq, row.state)


def _row_of(tx: Transaction, job: Job) -> Row:
    """The row of an adopted job. Its waiting time counts from its first submit."""
    spec, created = job.spec, micros(job.created_at)
    arrived, seq = tx.steady - max(0, tx.wall - created), tx.next_seq()
    band, order, _ = rank_of(tx.settings(spec.queue), job.priority, arrived, seq)
    row = tx.row_type(
        seq=seq,
        id=spec.id,
        name=(spec.queue, spec.task, spec.version),
        options=spec.options,
        unique=spec.unique,
        priority=job.priority,
        created=created,
        arrived=arrived,
        batch=spec.batch,
        known_spec=spec,
        band=band,
        ord=order,
        state=job.state,
        attempt=job.attempt,
        fence=job.fence + 1,
        n=job.revision,
        lost=job.lost,
        timeouts=job.timeouts,
        checkpoint=job.checkpoint,
        failure=job.failure,
        note=job.note,
        message=job.message,
        progress=job.progress,
        started=None if job.started_at is None else micros(job.started_at),
        reason=job.reason,
        finished=None if job.finished_at is None else micros(job.finished_at),
        purge_at=keep_until(job, tx.wall, tx.steady) if job.is_final else None,
        result=job.result,
        flight=flight_of(spec),
        cached_from=job.cached_from,
    )
    if job.expires_at is not None and job.state in UNFINISHED:
        row.expires = tx.steady + max(0, micros(job.expires_at) - tx.wall)
    if job.run_at is not None and job.state in (State.SCHEDULED, State.SUSPENDED):
        row.clock, row.due = WALL, micros(job.run_at)
    return row

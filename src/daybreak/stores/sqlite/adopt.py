"""Pack and adopt: read jobs for another store, and take over jobs of another store as they are."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from daybreak.core.events import encode
from daybreak.core.model import UNFINISHED, State
from daybreak.core.rank import rank_of
from daybreak.core.units import clean, micros, moment
from daybreak.store.protocol import Inserted, Moved, Verdict, clock_jump, job_topic, keep_until
from daybreak.stores.sqlite import job_moves
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import WALL, JobState, Row, pack_extra, pack_options
from daybreak.stores.sqlite.statements import sql


def pack(ledger: Ledger, jobs: Sequence[str]) -> list[Moved | None]:
    return [_pack(ledger, clean(job)) for job in jobs]


def _pack(ledger: Ledger, job: str) -> Moved | None:
    row = job_moves.load_id(ledger, job)
    if row is None:
        return None
    packed, jumped = row.as_job(), clock_jump(ledger.wall, ledger.steady)
    # As wall time: another store has another steady time.
    if row.expires is not None and jumped:
        packed = replace(packed, expires_at=moment(row.expires + jumped))
    if row.due is not None and row.state in (State.SCHEDULED, State.SUSPENDED):
        packed = replace(packed, run_at=moment(row.due if row.clock == WALL else row.due + jumped))
    keys = dict(ledger.execute(sql.keys_of_job, (job,)))
    gave_up = False
    if row.uniq is not None and row.state in UNFINISHED:
        gave_up = ledger.value(sql.holder_of, (row.uniq,)) != row.seq
    return Moved(packed, row.events(), keys, holds_name=not gave_up)


def adopt(ledger: Ledger, moved: Sequence[Moved], by: str) -> list[Inserted]:
    return [_find_conflict(ledger, one) or _adopt(ledger, one, by) for one in moved]


def _find_conflict(ledger: Ledger, moved: Moved) -> Inserted | None:
    job, spec = moved.job, moved.job.spec
    if (known := job_moves.load_id(ledger, spec.id)) is not None:
        return Inserted(Verdict.DUPLICATE, spec.id, known.seq, known.state, "id")
    for key in moved.keys:
        known_as = ledger.execute(sql.key_of, (key,)).fetchone()
        if known_as is not None and known_as[2] is None and (known_as[3] is None or known_as[3] <= ledger.steady):
            continue  # the key was spent, and its time is over
        if known_as is not None and (other := known_as[1]) != spec.id:
            there = job_moves.load_id(ledger, other)
            return Inserted(Verdict.CONFLICT, other, there.seq if there else 0, there.state if there else None, "key")
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        seq = ledger.value(sql.holder_of, (spec.unique,))
        holder = None if seq is None else job_moves.load(ledger, seq)
        if holder is not None:
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
    return None


def _adopt(ledger: Ledger, moved: Moved, by: str) -> Inserted:
    job, spec = moved.job, moved.job.spec
    created = micros(job.created_at)
    arrived = ledger.steady - max(0, ledger.wall - created)
    seq = ledger.next_seqs(1)
    lane = ledger.lane(spec.queue, spec.task, spec.version)
    band, order, _ = rank_of(ledger.settings(spec.queue), job.priority, arrived, seq)
    expires = None
    if job.expires_at is not None and job.state in UNFINISHED:
        expires = ledger.steady + max(0, micros(job.expires_at) - ledger.wall)
    ledger.execute(
        sql.insert_job,
        (
            seq, spec.id, lane, band, order, job.priority, spec.priority, created, arrived, expires, spec.by, spec.run,
            spec.owner, spec.key, spec.unique, pack_options(spec.options), pack_extra(spec), spec.args,
        ),
    )  # fmt: skip
    row = Row(
        seq, spec.id, lane, (spec.queue, spec.task, spec.version), band, order, job.priority, spec.priority, created,
        arrived, expires, spec.by, spec.run, spec.owner, spec.key, spec.unique, pack_options(spec.options),
        pack_extra(spec), spec.args,
    )  # fmt: skip
    row.state, row.reason, row.result = job.state, job.reason, job.result
    row.attempt, row.fence, row.n = job.attempt, job.fence + 1, job.revision
    row.carry = JobState(
        lost=job.lost, timeouts=job.timeouts, checkpoint=job.checkpoint, failure=job.failure, note=job.note,
        started=None if job.started_at is None else micros(job.started_at), progress=job.progress, message=job.message,
    )  # fmt: skip
    row.history = b"\n".join(encode(event) for event in moved.history)
    if job.state in (State.SCHEDULED, State.SUSPENDED) and job.run_at is not None:
        row.clock, row.due = WALL, micros(job.run_at)
    if job.finished_at is not None:
        row.finished = micros(job.finished_at)
        row.purge_at = keep_until(job, ledger.wall, ledger.steady)
    for key, digest in moved.keys.items():  # including one that was left here when the job moved away
        ledger.execute(sql.insert_key, (key, digest, spec.id, None))
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        ledger.execute(sql.insert_unique, (spec.unique, seq))
    ledger.known.last_id = None
    run_at = moment(row.due) if row.due is not None and job.state is State.SCHEDULED else None
    if row.state is State.BLOCKED:  # this store decides for which resource
        row.state = job_moves.first_state(ledger, row)
    job_moves.record(ledger, row, "moved", by, state=row.state, reason=job.reason, fence=row.fence, run_at=run_at)
    job_moves.enter(ledger, row)
    if job.is_final:
        ledger.wake(job_topic(job.id))
    return Inserted(Verdict.NEW, spec.id, seq, row.state)

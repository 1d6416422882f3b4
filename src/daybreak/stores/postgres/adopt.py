"""Moves jobs between stores: `pack` reads jobs for another store, `adopt` takes over jobs of another store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from daybreak.core.model import FINAL, UNFINISHED, Job, State
from daybreak.core.rank import rank_of
from daybreak.core.units import clean, micros, moment
from daybreak.store.protocol import Inserted, Moved, Verdict, job_topic, keep_until
from daybreak.stores.postgres import event_lines, job_moves
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.insert import KEY_LOCKS, NAME_LOCKS, write_jobs
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import WALL, JobState, Row, pack_extra, pack_options, text_bytes
from daybreak.stores.postgres.transactional_submit import check


def pack(ledger: Ledger, jobs: Sequence[str]) -> list[Moved | None]:
    ids = [clean(job) for job in jobs]
    seqs = dict(ledger.rows(ledger.sql.seqs_of_ids, (Texts(ids),)))
    rows = job_moves.read_rows(ledger, list(seqs.values())) if seqs else {}
    keys: dict[str, dict[str, str]] = {}
    for job, key, digest in ledger.rows(ledger.sql.keys_of_jobs, (Texts(ids),)):
        keys.setdefault(job, {})[key] = digest
    found = [rows.get(seqs.get(job, 0)) for job in ids]
    holders = _holders(ledger, [row for row in found if row is not None])
    offset = ledger.wall - ledger.steady
    return [
        None
        if row is None
        else Moved(
            _job_to_move(row, offset), row.events(), keys.get(row.id, {}), holders.get(row.seq, row.seq) == row.seq
        )
        for row in found
    ]


def _holders(ledger: Ledger, rows: Sequence[Row]) -> dict[int, int | None]:
    """By the seq of an unfinished job with a unique name: the seq of the job that holds that name."""
    named = [row for row in rows if row.uniq is not None and row.state in UNFINISHED]
    names = [row.uniq for row in named if row.uniq is not None]
    held = dict(ledger.rows(ledger.sql.holders_of, (Texts(names),))) if names else {}
    return {row.seq: held.get(row.uniq) for row in named}


def _job_to_move(row: Row, offset: int) -> Job:
    """The job with wall times: the steady time of this store means nothing to another."""
    job = row.as_job()
    if row.expires is not None and offset:
        job = replace(job, expires_at=moment(row.expires + offset))
    if row.due is not None and row.state in (State.SCHEDULED, State.SUSPENDED):
        return replace(job, run_at=moment(row.due if row.clock == WALL else row.due + offset))
    return job


def adopt(ledger: Ledger, moved: Sequence[Moved], by: str) -> list[Inserted]:
    for one in moved:
        check(one.job.spec)
    keys = {key for one in moved for key in one.keys}
    names = {one.job.spec.unique for one in moved if one.job.spec.unique is not None}
    for kind, wanted in ((KEY_LOCKS, keys), (NAME_LOCKS, names)):
        if wanted:
            ledger.rows(ledger.sql.lock_names, (kind, Texts(sorted(wanted))))
    return [_find_conflict(ledger, one) or _adopt(ledger, one, by) for one in moved]


def _find_conflict(ledger: Ledger, moved: Moved) -> Inserted | None:
    job, spec, sql = moved.job, moved.job.spec, ledger.sql
    if (existing := job_moves.load_id(ledger, spec.id)) is not None:
        return Inserted(Verdict.DUPLICATE, spec.id, existing.seq, existing.state, "id")
    for _, _, other, seq, until in ledger.rows(sql.keys_of, (Texts(list(moved.keys)),)) if moved.keys else ():
        is_over = seq is None and (until is None or until <= ledger.steady)
        if other != spec.id and not is_over:
            existing = None if seq is None else job_moves.read_rows(ledger, [seq]).get(seq)
            return Inserted(
                Verdict.CONFLICT, other, existing.seq if existing else 0, existing.state if existing else None, "key"
            )
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        seq = ledger.value(sql.holder_of, (spec.unique,))
        holder = None if seq is None else job_moves.load(ledger, seq)
        if holder is not None and holder.state not in FINAL:
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
    return None


def _adopt(ledger: Ledger, moved: Moved, by: str) -> Inserted:
    job, spec, sql = moved.job, moved.job.spec, ledger.sql
    [seq] = ledger.next_seqs(1)
    row = _row_of(ledger, seq, job)
    if row.state is State.BLOCKED:  # this store decides itself what the job waits for
        job_moves.make_ready(ledger, row)
    row.history = "\n".join(event_lines.write(event) for event in moved.history)
    write_jobs(ledger, [row])
    if moved.keys:
        _write_keys(ledger, spec.id, moved.keys)
    if spec.unique is not None and job.state in UNFINISHED and moved.holds_name:
        ledger.run(sql.insert_uniques, (Texts([spec.unique]), Bigints([seq])))
    run_at = moment(row.due) if row.due is not None and job.state is State.SCHEDULED else None
    job_moves.record(ledger, row, "moved", by, state=row.state, reason=job.reason, fence=row.fence, run_at=run_at)
    job_moves.enter(ledger, row)
    if job.is_final:
        ledger.wake(job_topic(job.id))
    return Inserted(Verdict.NEW, spec.id, seq, row.state)


def _write_keys(ledger: Ledger, job: str, keys: dict[str, str]) -> None:
    """Write the job's keys. They may exist here already if the job came from this store."""
    jobs, times = [job] * len(keys), [None] * len(keys)
    ledger.run(ledger.sql.insert_keys, (Texts(list(keys)), Texts(list(keys.values())), Texts(jobs), Bigints(times)))


def _row_of(ledger: Ledger, seq: int, job: Job) -> Row:
    """The row of a moved job. Its waiting time counts from its first submission."""
    spec, created = job.spec, micros(job.created_at)
    arrived = ledger.steady - max(0, ledger.wall - created)
    band, order, _ = rank_of(ledger.settings(spec.queue), job.priority, arrived, seq)
    expires = None
    if job.expires_at is not None and job.state in UNFINISHED:
        expires = ledger.steady + max(0, micros(job.expires_at) - ledger.wall)
    is_delayed = job.state in (State.SCHEDULED, State.SUSPENDED) and job.run_at is not None
    return Row(
        seq=seq, id=spec.id, lane=ledger.lane(spec.queue, spec.task, spec.version),
        name=(spec.queue, spec.task, spec.version), band=band, ord=order, priority=job.priority, asked=spec.priority,
        created=created, arrived=arrived, expires=expires, by=spec.by, run=spec.run, owner=spec.owner, key=spec.key,
        uniq=spec.unique, options=pack_options(spec.options), extra=pack_extra(spec), args=spec.args, state=job.state,
        attempt=job.attempt, fence=job.fence + 1, n=job.revision,
        started=None if job.started_at is None else micros(job.started_at), progress=job.progress,
        carry=JobState(lost=job.lost, timeouts=job.timeouts, checkpoint=job.checkpoint, failure=job.failure),
        note=text_bytes(job.note), message=text_bytes(job.message), history=None,
        clock=WALL if is_delayed else None, due=micros(job.run_at) if is_delayed and job.run_at else None, worker=None,
        until=None, term=None, call=None, reaped=None, alone=None, suspending=None, cancelling=None, reason=job.reason,
        finished=None if job.finished_at is None else micros(job.finished_at),
        purge_at=keep_until(job, ledger.wall, ledger.steady) if job.is_final else None, result=job.result,
    )  # fmt: skip

"""Adopt: jobs of another store, as they are."""

from __future__ import annotations

from collections.abc import Sequence

from daybreak.events import encode
from daybreak.model import UNFINISHED, Job, State
from daybreak.rank import place
from daybreak.store import Inserted, Moved, Verdict, job_topic, kept_until
from daybreak.stores.sqlite import places
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import WALL, Carry, Row, pack_extra, pack_options
from daybreak.stores.sqlite.statements import sql
from daybreak.units import micros


def adopt(ledger: Ledger, moved: Sequence[Moved], by: str) -> list[Inserted]:
    return [_in_the_way(ledger, one.job) or _adopt(ledger, one, by) for one in moved]


def _in_the_way(ledger: Ledger, job: Job) -> Inserted | None:
    spec = job.spec
    if (known := places.load_id(ledger, spec.id)) is not None:
        return Inserted(Verdict.DUPLICATE, spec.id, known.seq, known.state, "id")
    known_as = None if spec.key is None else ledger.execute(sql.key_of, (spec.key,)).fetchone()
    if known_as is not None and (other := known_as[1]) != spec.id:
        there = places.load_id(ledger, other)
        return Inserted(Verdict.CONFLICT, other, there.seq if there else 0, there.state if there else None, "key")
    if spec.unique is not None and job.state in UNFINISHED:
        seq = ledger.value(sql.holder_of, (spec.unique,))
        holder = None if seq is None else places.load(ledger, seq)
        if holder is not None:
            return Inserted(Verdict.CONFLICT, holder.id, holder.seq, holder.state, "unique")
    return None


def _adopt(ledger: Ledger, moved: Moved, by: str) -> Inserted:
    job, spec = moved.job, moved.job.spec
    created = micros(job.created_at)
    arrived = ledger.steady - max(0, ledger.wall - created)
    seq = ledger.next_seqs(1)
    lane = ledger.lane(spec.queue, spec.task, spec.version)
    band, order, _ = place(ledger.settings(spec.queue), job.priority, arrived, seq)
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
    row.carry = Carry(
        lost=job.lost, timeouts=job.timeouts, checkpoint=job.checkpoint, failure=job.failure, note=job.note,
        started=None if job.started_at is None else micros(job.started_at), progress=job.progress, message=job.message,
    )  # fmt: skip
    row.history = b"\n".join(encode(event) for event in moved.history)
    if job.state in (State.SCHEDULED, State.SUSPENDED) and job.run_at is not None:
        row.clock, row.due = WALL, micros(job.run_at)
    if job.finished_at is not None:
        row.finished = micros(job.finished_at)
        row.purge_at = kept_until(job, ledger.wall, ledger.steady)
    if spec.key is not None and ledger.execute(sql.key_of, (spec.key,)).fetchone() is None:
        ledger.execute(sql.insert_key, (spec.key, spec.digest, spec.id))
    if spec.unique is not None and job.state in UNFINISHED:
        ledger.execute(sql.insert_unique, (spec.unique, seq))
    ledger.known.last_id = None
    places.tell(ledger, row, "moved", by, state=job.state, reason=job.reason, fence=row.fence)
    places.enter(ledger, row)
    if job.is_final:
        ledger.wake(job_topic(job.id))
    return Inserted(Verdict.NEW, spec.id, seq, job.state)

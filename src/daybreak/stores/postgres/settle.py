"""Settle, extend and reap leases; each is changed only if its fence still matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import FINAL, JobSpec, Lease, Put, Settlement, State
from daybreak.core.units import span
from daybreak.store.protocol import Beat, Extended, Reap
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Floats
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import STEADY, JobState, Row, pack_carry, text_bytes, unpack_carry


class Settling:
    """Writes settlements. Their `inserts` and `puts` are collected for the caller to write."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.inserts: list[JobSpec] = []
        self.puts: list[Put] = []

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        rows = job_moves.load_all(self._ledger, (settlement.seq for settlement in settlements))
        if any(row.needs for row in rows.values()) and self._ledger.has_resource_lock:
            self._ledger.gauges.load_needs(rows.values())
        moved: list[Row] = []
        answers = [self._settle(settlement, rows.get(settlement.seq), moved) for settlement in settlements]
        job_moves.enter_all(self._ledger, moved)
        return answers

    def _settle(self, settlement: Settlement, row: Row | None, moved: list[Row]) -> bool:
        if row is None or row.fence != settlement.fence:
            return False
        if row.state is not State.RUNNING:
            return True  # the same settlement arrived before: only its reply was lost
        if settlement.unused and row.needs:
            self._ledger.gauges.give_starts(row.needs, row.started)
        if row.cancelling is not None:
            # Once a cancel of a running job was accepted, the job may neither complete nor run again.
            row.attempt = settlement.attempt
            job_moves.finish(self._ledger, row, State.CANCELLED, by=row.cancelling.decode())
            return True
        if row.suspending and settlement.state in (State.QUEUED, State.SCHEDULED):
            settlement = msgspec.structs.replace(settlement, state=State.SUSPENDED, delay=None)
        self._write(settlement, row)
        moved.append(row)
        self.inserts += settlement.inserts
        self.puts += settlement.puts
        return True

    def _write(self, settlement: Settlement, row: Row) -> None:
        ledger = self._ledger
        ledger.totals.settle(row.lane, row.priority, settlement, ledger.wall)
        job_moves.leave(ledger, row)
        row.attempt, row.carry.lost, row.carry.timeouts = settlement.attempt, settlement.lost, settlement.timeouts
        if settlement.checkpoint is not None:
            row.carry.checkpoint = settlement.checkpoint
        if settlement.failure is not None:
            row.carry.failure = settlement.failure
        row.note = text_bytes(settlement.note)
        if settlement.delay is not None:
            row.clock, row.due = STEADY, ledger.steady + span(settlement.delay)
        row.state, row.reason = settlement.state, settlement.reason
        if settlement.state is State.COMPLETED:
            row.result = settlement.result
            row.carry = JobState(lost=settlement.lost, timeouts=settlement.timeouts)
        if settlement.state in FINAL:
            keep = settlement.keep_for
            row.purge_at = None if keep is None else ledger.steady + span(keep)
            job_moves.close(ledger, row)
        else:
            job_moves.update_rank(ledger, row)
        job_moves.record_event(ledger, row, events.settled(settlement, row.n + 1, ledger.at, row.due_at))


@dataclass(slots=True)
class ExtendedLease:
    """A lease to be extended (a row of the statement `lock_beats`), and the values to write."""

    seq: int
    fence: int
    n: int
    worker: str
    suspending: bool
    is_cancelled: bool
    packed_carry: bytes | None
    job: str
    term: int = 0
    alone: bool | None = None
    ahead: bool | None = None
    progress: float | None = None
    message: bytes | None = None
    carry: JobState | None = None


def extend(ledger: Ledger, beats: Sequence[Beat]) -> list[Extended]:
    """Extend leases. Reads only the lease, not the job: arguments may be large and heartbeats are frequent."""
    seqs = sorted({beat.seq for beat in beats})
    leases = {row[0]: ExtendedLease(*row) for row in ledger.rows(ledger.sql.lock_beats, (Bigints(seqs),))}
    answers: list[Extended] = []
    held: dict[int, ExtendedLease] = {}
    for beat in beats:
        lease = leases.get(beat.seq)
        if lease is None or lease.fence != beat.fence:
            answers.append(Extended(held=False))
            continue
        held[lease.seq] = lease
        lease.term = span(beat.lease_for)
        if beat.alone is not None:
            lease.alone = beat.alone
        if beat.begun is not None:
            lease.ahead = not beat.begun
        if beat.checkpoint is not None:
            lease.carry = lease.carry or unpack_carry(lease.packed_carry)
            lease.carry.checkpoint = beat.checkpoint
        if beat.progress is not None:
            lease.progress, lease.message = beat.progress, text_bytes(beat.message)
            _publish_progress(ledger, lease, beat)
        answers.append(Extended(held=True, cancel=lease.is_cancelled, suspend=lease.suspending))
    _write_beats(ledger, list(held.values()))
    return answers


def _publish_progress(ledger: Ledger, lease: ExtendedLease, beat: Beat) -> None:
    ledger.publish(
        Event(
            n=lease.n, kind="progress", job=lease.job, at=ledger.at, by=lease.worker, progress=beat.progress,
            note=beat.message,
        )
    )  # fmt: skip


def _write_beats(ledger: Ledger, held: Sequence[ExtendedLease]) -> None:
    if held:
        ledger.run(
            ledger.sql.extend_lease,
            (
                Bigints([lease.seq for lease in held]), Bigints([ledger.steady + lease.term for lease in held]),
                Bigints([lease.term for lease in held]), Bools([lease.alone for lease in held]),
                Bools([lease.ahead for lease in held]),
                Floats([lease.progress for lease in held]), Blobs([lease.message for lease in held]),
                Bools([lease.carry is not None for lease in held]),
                Blobs([None if lease.carry is None else pack_carry(lease.carry) for lease in held]),
            ),
        )  # fmt: skip


def reap(ledger: Ledger, request: Reap, asked_at: int, watched_for: int) -> list[Lease]:
    """Take over lapsed leases. `asked_at` is the store's time at which the request was sent, and only a lease that had
    lapsed by then is taken: whatever delayed the request may have delayed the holders' heartbeats, too."""
    found = ledger.rows(ledger.sql.lapsed_leases, (asked_at, watched_for, request.limit))
    seqs = [seq for (seq,) in found]
    ledger.locked.update(dict.fromkeys(seqs, State.RUNNING))
    rows = job_moves.load_all(ledger, seqs)
    return [_take_over(ledger, rows[seq], request) for seq in seqs]


def _take_over(ledger: Ledger, row: Row, request: Reap) -> Lease:
    row.fence += 1
    row.worker, row.call, row.reaped = request.worker, None, True
    row.term = span(request.lease_for)
    row.until = ledger.steady + row.term
    job_moves.record(ledger, row, "lease_expired", request.worker, fence=row.fence)
    ledger.run(ledger.sql.take_over_lease, (row.fence, row.n, row.worker, row.until, row.term, row.history, row.seq))
    return row.as_lease()

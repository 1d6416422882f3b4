"""Settle: write the fate of leases, each only if its fence still holds. And what happens while they run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from daybreak import events
from daybreak.events import Event
from daybreak.model import FINAL, JobSpec, Lease, Put, Settlement, State
from daybreak.store import Beat, Extended, Reap
from daybreak.stores.postgres import places
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Floats
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import STEADY, Carry, Row, pack_carry, text_bytes
from daybreak.units import span


class Settling:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.inserts: list[JobSpec] = []
        self.puts: list[Put] = []

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        rows = places.load_all(self._ledger, (settlement.seq for settlement in settlements))
        moved: list[Row] = []
        answers = [self._settle(settlement, rows.get(settlement.seq), moved) for settlement in settlements]
        places.enter_all(self._ledger, moved)
        return answers

    def _settle(self, settlement: Settlement, row: Row | None, moved: list[Row]) -> bool:
        if row is None or row.fence != settlement.fence:
            return False
        if row.state is not State.RUNNING:
            return True  # this very fence ended before: the reply was lost, the work was not
        if row.cancelling is not None:
            # Whoever was told that a running job is being cancelled never sees it complete or run again.
            row.attempt = settlement.attempt
            places.finish(self._ledger, row, State.CANCELLED, by=row.cancelling.decode())
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
        places.leave(ledger, row)
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
            row.carry = Carry(lost=settlement.lost, timeouts=settlement.timeouts)
        if settlement.state in FINAL:
            keep = settlement.keep_for
            row.purge_at = None if keep is None else ledger.steady + span(keep)
            places.close(ledger, row)
        else:
            places.put_in_place(ledger, row)
        places.remember(ledger, row, events.settled(settlement, row.n + 1, ledger.at, row.due_at))


def extend(ledger: Ledger, beats: Sequence[Beat]) -> list[Extended]:
    rows = places.load_all(ledger, (beat.seq for beat in beats))
    answers: list[Extended] = []
    held: dict[int, tuple[Row, bool]] = {}
    for beat in beats:
        row = rows.get(beat.seq)
        if row is None or row.state is not State.RUNNING or row.fence != beat.fence:
            answers.append(Extended(held=False))
            continue
        row.term = span(beat.lease_for)
        row.until = ledger.steady + row.term
        if beat.alone is not None:
            row.alone = beat.alone
        if beat.checkpoint is not None:
            row.carry.checkpoint = beat.checkpoint
        if beat.progress is not None:
            row.progress, row.message = beat.progress, text_bytes(beat.message)
            _tell_progress(ledger, row, beat)
        carries = beat.checkpoint is not None or held.get(row.seq, (row, False))[1]
        held[row.seq] = (row, carries)
        answers.append(Extended(held=True, cancel=row.cancelling is not None, suspend=bool(row.suspending)))
    _write_beats(ledger, list(held.values()))
    return answers


def _tell_progress(ledger: Ledger, row: Row, beat: Beat) -> None:
    ledger.tell(
        Event(
            n=row.n, kind="progress", job=row.id, at=ledger.at, by=row.worker or "", progress=beat.progress,
            note=beat.message,
        )
    )  # fmt: skip


def _write_beats(ledger: Ledger, held: Sequence[tuple[Row, bool]]) -> None:
    if held:
        rows = [row for row, _ in held]
        ledger.run(
            ledger.sql.extend_lease,
            (
                Bigints([r.seq for r in rows]), Bigints([r.until for r in rows]), Bigints([r.term for r in rows]),
                Bools([r.alone for r in rows]), Floats([r.progress for r in rows]),
                Blobs([r.message for r in rows]), Bools([carries for _, carries in held]),
                Blobs([pack_carry(r.carry) if carries else None for r, carries in held]),
            ),
        )  # fmt: skip


def reap(ledger: Ledger, wanted: Reap, asked_at: int, watched_for: int) -> list[Lease]:
    """`asked_at` is the store's time of the question: what lapsed while it was on its way lapsed while the holders'
    heartbeats were on theirs."""
    found = ledger.rows(ledger.sql.lapsed_leases, (asked_at, watched_for, wanted.limit))
    seqs = [seq for (seq,) in found]
    ledger.locked.update(dict.fromkeys(seqs, State.RUNNING))
    rows = places.load_all(ledger, seqs)
    return [_take_over(ledger, rows[seq], wanted) for seq in seqs]


def _take_over(ledger: Ledger, row: Row, wanted: Reap) -> Lease:
    row.fence += 1
    row.worker, row.call, row.reaped = wanted.worker, None, True
    row.term = span(wanted.lease_for)
    row.until = ledger.steady + row.term
    places.tell(ledger, row, "lease_expired", wanted.worker, fence=row.fence)
    ledger.run(ledger.sql.take_over_lease, (row.fence, row.n, row.worker, row.until, row.term, row.history, row.seq))
    return row.as_lease()

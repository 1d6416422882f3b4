"""Settle, extend and take over leases, each only if its fence still matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import FINAL, JobSpec, Lease, Put, Settlement, State
from daybreak.core.units import moment, span
from daybreak.store.protocol import Beat, Extended, Reap
from daybreak.stores.kernel import flights, landings, moves
from daybreak.stores.kernel.port import HeldLease
from daybreak.stores.kernel.row import STEADY, Row
from daybreak.stores.kernel.transaction import Transaction


class Settling:
    """One batch of settlements. Their `inserts` and `puts` are collected for the caller to write."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.inserts: list[JobSpec] = []
        self.puts: list[Put] = []
        self._unused: Counter[int] = Counter()  # batch calls of which leases are settled as unused

    def settle(self, settlements: Sequence[Settlement], follow: Sequence[JobSpec] = ()) -> list[bool]:
        """Whether each was accepted. `follow`: jobs that the same transaction inserts afterwards."""
        plain = self._tx.find_plain(settlements)
        rows = self._tx.load([settlement.seq for settlement in settlements if settlement.seq not in plain])
        if needy := [row for row in rows.values() if row.needs and row.state is State.RUNNING]:
            self._tx.gauges.load_needs(needy)
        flights.lock(self._tx, rows.values(), follow)
        self._find_unused_calls(settlements, rows)
        answers = []
        for settlement in settlements:
            if settlement.seq in plain:
                self._tx.complete_plain(settlement)
                self._follow(settlement)
                answers.append(True)
            else:
                answers.append(self._settle(settlement, rows.get(settlement.seq)))
        return answers

    def _find_unused_calls(self, settlements: Sequence[Settlement], rows: Mapping[int, Row]) -> None:
        for settlement in settlements:
            row = rows.get(settlement.seq) if settlement.unused else None
            if row is not None and row.group is not None and row.fence == settlement.fence:
                self._unused[row.group] += 1

    def _is_start_unused(self, row: Row) -> bool:
        """Whether the rate token of an unused lease is given back. That of a batch call belongs to its head, and is
        given back only if all jobs of the call are handed back together."""
        return row.group is None or (row.group == row.seq and self._unused[row.group] == row.elements)

    def _settle(self, settlement: Settlement, row: Row | None) -> bool:
        tx = self._tx
        if row is None or row.fence != settlement.fence:
            return False
        if row.state is not State.RUNNING:
            return True  # a repetition: this fence was settled before, and only the reply was lost
        if settlement.unused:
            if self._is_start_unused(row):
                tx.gauges.give_starts(row.needs, row.started)
        elif row.elements and not row.reaped:
            moves.complete_call(tx, row, by=settlement.by, took=settlement.ran)
        if row.cancelling is not None:
            # A cancel request is binding: the job neither completes nor runs again.
            row.attempt = settlement.attempt
            moves.finish(tx, row, State.CANCELLED, by=row.cancelling)
            return True
        if row.suspending and settlement.state in (State.QUEUED, State.SCHEDULED):
            settlement = msgspec.structs.replace(settlement, state=State.SUSPENDED, delay=None)
        self._write(row, settlement)
        self._follow(settlement)
        return True

    def _follow(self, settlement: Settlement) -> None:
        if settlement.inserts or settlement.puts:
            self.inserts += settlement.inserts
            self.puts += settlement.puts

    def _write(self, row: Row, settlement: Settlement) -> None:
        tx = self._tx
        tx.count_settled(row, settlement)
        moves.end_lease(tx, row)
        row.attempt, row.lost, row.timeouts = settlement.attempt, settlement.lost, settlement.timeouts
        if settlement.checkpoint is not None:
            row.checkpoint = settlement.checkpoint
        if settlement.failure is not None:
            row.failure = settlement.failure
        row.note = settlement.note
        if settlement.delay is not None:
            row.clock, row.due = STEADY, tx.steady + span(settlement.delay)
        row.state, row.reason = settlement.state, settlement.reason
        if settlement.state is State.COMPLETED:
            row.result, row.failure, row.checkpoint = settlement.result, None, None
        if settlement.state in FINAL:
            moves.close(tx, row, None if settlement.keep_for is None else span(settlement.keep_for))
        else:
            moves.update_rank(tx, row)
            tx.change(row)
        tx.record_event(row, events.settled(settlement, row.n + 1, tx.at, row.due_at))
        if settlement.state is State.COMPLETED and not settlement.unkept:
            landings.deliver(tx, row, settlement)
        elif settlement.state in FINAL or settlement.state is State.SUSPENDED:
            flights.leave(tx, row)


def extend(tx: Transaction, beats: Sequence[Beat]) -> list[Extended]:
    """Extend leases. Reads only the lease, not the job: arguments may be large, and heartbeats are frequent."""
    answers: list[Extended] = []
    chunk: list[Beat] = []
    detached: set[int] = set()
    for beat in beats:
        if beat.seq in detached:  # what comes after a detachment must see it
            answers += _extend_all(tx, chunk)
            chunk, detached = [], set()
        chunk.append(beat)
        if beat.detach:
            detached.add(beat.seq)
    return answers + _extend_all(tx, chunk)


def _extend_all(tx: Transaction, beats: Sequence[Beat]) -> list[Extended]:
    leases = tx.read_leases(sorted({beat.seq for beat in beats}))
    answers = [_extend(tx, leases.get(beat.seq), beat) for beat in beats]
    held = [lease for lease in leases.values() if lease.is_held]
    if extended := [lease for lease in held if lease.detach is None]:
        tx.write_leases(extended)
    if detached := [lease for lease in held if lease.detach is not None]:
        _detach(tx, detached)
    return answers


def _extend(tx: Transaction, lease: HeldLease | None, beat: Beat) -> Extended:
    if lease is None or lease.fence != beat.fence:
        return Extended(held=False)
    if beat.detach:
        lease.detach, lease.is_detached = beat, True
    elif lease.is_detached:
        return Extended(held=False)  # a late heartbeat of the worker that has given it up
    lease.is_held, lease.term = True, span(beat.lease_for)
    if beat.alone is not None:
        lease.alone = beat.alone
    if beat.begun is not None:
        lease.ahead = not beat.begun
    if beat.checkpoint is not None:
        lease.checkpoint = beat.checkpoint
    if beat.progress is not None:
        lease.progress, lease.message = beat.progress, beat.message
        tx.publish(
            Event(
                n=lease.n, kind="progress", job=lease.job, at=tx.at, by=lease.worker, progress=beat.progress,
                note=beat.message,
            )
        )  # fmt: skip
    return Extended(held=True, cancel=lease.is_cancelled, suspend=lease.is_suspending)


def _detach(tx: Transaction, leases: Sequence[HeldLease]) -> None:
    """Detach leases, or give those that are detached a new deadline."""
    rows = tx.load([lease.seq for lease in leases])
    for lease in leases:
        row, beat = rows[lease.seq], lease.detach
        assert beat is not None
        if lease.checkpoint is not None:
            row.checkpoint = lease.checkpoint
        if lease.progress is not None:
            row.progress, row.message = lease.progress, lease.message
        if row.cancelling is not None:
            moves.finish(tx, row, State.CANCELLED, by=row.cancelling)
            continue
        row.term, row.until = lease.term, tx.steady + lease.term
        is_new, row.detached, row.call, row.alone, row.ahead = not row.detached, True, None, False, False
        if is_new:
            tx.count(row, "detached")
        if is_new or beat.by:
            tx.record(row, "detached", beat.by or row.worker or "", deadline=moment(tx.wall + row.term))
        tx.change(row)
    tx.write()


def reap(tx: Transaction, request: Reap, asked_at: int) -> list[Lease]:
    """Take over lapsed leases. `asked_at` is the store's time at which the request was sent, and only a lease that had
    lapsed by then is taken: whatever delayed the request may have delayed the holders' heartbeats, too."""
    seqs = tx.lapsed(asked_at, span(request.watched_for), request.limit)
    return [_take_over(tx, row, request) for row in tx.load(seqs).values()]


def _take_over(tx: Transaction, row: Row, request: Reap) -> Lease:
    row.fence += 1
    row.worker, row.call, row.reaped = request.worker, None, True
    row.term = span(request.lease_for)
    row.until = tx.steady + row.term
    tx.record(row, "lease_expired", request.worker, fence=row.fence)
    tx.change(row)
    return row.as_lease()

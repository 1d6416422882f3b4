"""Settle: write the outcome of leases, each only if its fence still matches. Also heartbeats and takeovers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import FINAL, JobSpec, Lease, Put, Settlement, State
from daybreak.core.units import span
from daybreak.store.protocol import Beat, Extended, Reap, job_topic, work_topic
from daybreak.stores.sqlite import gauge_rows, job_moves
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import STEADY, JobState, Row, Totals, Values, pack_carry, unpack_carry
from daybreak.stores.sqlite.statements import sql

# Module constants, because every access to an enum member is a function call.
RUNNING, COMPLETED = State.RUNNING, State.COMPLETED

Counted = tuple[int, int, str]  # lane, priority, counts_as


class Settling:
    """One batch of settlements. Completed jobs, the majority, are written in bulk; the others one at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leases: dict[int, Values] = {}
        self._done: list[Values] = []
        self._ended: dict[int, int] = {}
        self._completed: defaultdict[Counted, list[Settlement]] = defaultdict(list)
        self._others: defaultdict[Counted, list[Settlement]] = defaultdict(list)
        self.inserts: list[JobSpec] = []
        self.puts: list[Put] = []

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        seqs = msgspec.json.encode([settlement.seq for settlement in settlements]).decode()
        self._leases = {lease[0]: lease for lease in self._ledger.execute(sql.leases_of, (seqs,))}
        answers = [self._settle(settlement) for settlement in settlements]
        self._write()
        return answers

    def _settle(self, settlement: Settlement) -> bool:
        ledger, seq = self._ledger, settlement.seq
        if seq in self._ended:  # twice in one batch: the second one is a repetition
            return self._ended[seq] == settlement.fence
        if (lease := self._leases.get(seq)) is None:
            return bool(ledger.value(sql.fence_of, (seq,)) == settlement.fence)
        _, lane, priority, uniq, fence, n, _, started, suspending, cancelling, carry, history, needs = lease
        if fence != settlement.fence:
            return False
        self._ended[seq] = fence
        if settlement.unused and needs is not None:
            gauge_rows.give_starts(ledger, gauge_rows.unpack_needs(needs), started)
        if settlement.state is not COMPLETED or cancelling is not None:
            if cancelling is None:
                self._others[lane, priority, settlement.counts_as].append(settlement)
            self._write_other(settlement, cancelling, suspending)
            return True
        if carry is not None or settlement.lost or settlement.timeouts or settlement.note:
            carry = self._carry_of_completed(settlement, carry)
        line = ledger.publish(events.settled(settlement, n + 1, ledger.at, None))
        keep = settlement.keep_for
        self._done.append((
            seq, "completed", None, settlement.attempt, fence, n + 1, started, ledger.wall,
            None if keep is None else ledger.steady + span(keep), settlement.result, carry,
            job_moves.append_history(ledger, seq, n + 1, history, line),
        ))  # fmt: skip
        self._completed[lane, priority, settlement.counts_as].append(settlement)
        if needs is not None:
            gauge_rows.give(ledger, gauge_rows.unpack_needs(needs))
        if uniq is not None:
            ledger.execute(sql.delete_unique, (uniq, seq))
        ledger.wake(job_topic(settlement.job))
        self._follow(settlement)
        return True

    @staticmethod
    def _carry_of_completed(settlement: Settlement, packed: bytes | None) -> bytes | None:
        before = unpack_carry(packed)
        return pack_carry(
            JobState(
                lost=settlement.lost, timeouts=settlement.timeouts, note=settlement.note, progress=before.progress,
                message=before.message,
            )
        )  # fmt: skip

    def _write_other(self, settlement: Settlement, cancelling: str | None, suspending: int) -> None:
        ledger = self._ledger
        row = job_moves.load(ledger, settlement.seq)
        assert row is not None
        if cancelling is not None:
            # A cancel request is binding: the job neither completes nor runs again.
            row.attempt = settlement.attempt
            job_moves.finish(ledger, row, State.CANCELLED, by=cancelling)
            return
        if suspending and settlement.state in (State.QUEUED, State.SCHEDULED):
            settlement = msgspec.structs.replace(settlement, state=State.SUSPENDED, delay=None)
        job_moves.leave(ledger, row)
        row.attempt, row.carry.lost, row.carry.timeouts = settlement.attempt, settlement.lost, settlement.timeouts
        if settlement.checkpoint is not None:
            row.carry.checkpoint = settlement.checkpoint
        if settlement.failure is not None:
            row.carry.failure = settlement.failure
        row.carry.note = settlement.note
        if settlement.delay is not None:
            row.clock, row.due = STEADY, ledger.steady + span(settlement.delay)
        row.state, row.reason = settlement.state, settlement.reason
        if settlement.state in FINAL:
            self._close(row, settlement)
        else:
            job_moves.update_rank(ledger, row)
        event = events.settled(settlement, row.n + 1, ledger.at, job_moves.due_at(row))
        job_moves.record_event(ledger, row, event)
        job_moves.enter(ledger, row)
        self._follow(settlement)

    def _close(self, row: Row, settlement: Settlement) -> None:
        ledger = self._ledger
        row.clock = row.due = None
        row.finished = ledger.wall
        row.purge_at = None if settlement.keep_for is None else ledger.steady + span(settlement.keep_for)
        job_moves.release_unique(ledger, row)
        ledger.wake(job_topic(row.id))

    def _follow(self, settlement: Settlement) -> None:
        if settlement.inserts or settlement.puts:
            self.inserts += settlement.inserts
            self.puts += settlement.puts

    def _write(self) -> None:
        ledger = self._ledger
        if self._done:
            ledger.executemany(sql.delete_lease, [(row[0],) for row in self._done])
            ledger.executemany(sql.insert_done, self._done)
        for (lane, priority, _), completed in self._completed.items():
            ledger.tally(lane, priority, RUNNING, -len(completed))
            ledger.tally(lane, priority, COMPLETED, len(completed))
            queue = ledger.name_of(lane)[0]
            if ledger.settings(queue).max_running is not None:
                ledger.wake(work_topic(queue))
        self._count()

    def _count(self) -> None:
        counted = set()
        for (lane, priority, counts_as), same in (*self._completed.items(), *self._others.items()):
            if counts_as:
                added = _summed(counts_as, same, self._ledger.wall)
                if (lane, priority) not in counted:
                    counted.add((lane, priority))
                    added["batches"] = (1, 0)
                self._ledger.count(lane, priority, added)


def _summed(counts_as: str, same: list[Settlement], wall: int) -> Totals:
    ran = longest = firsts = waited = attempts = 0
    for settlement in same:
        ran += settlement.ran
        longest = max(longest, settlement.ran)
        if settlement.waited is not None:
            firsts += 1
            waited += settlement.waited
        attempts = max(attempts, settlement.attempt)
    added = {counts_as: (len(same), ran), "last": (wall, longest)}
    if firsts:
        added["waited"] = (firsts, waited)
    if attempts > 1:
        added["attempts"] = (attempts, 0)
    return added


def extend(ledger: Ledger, beats: Sequence[Beat]) -> list[Extended]:
    return [_extend(ledger, beat) for beat in beats]


def _extend(ledger: Ledger, beat: Beat) -> Extended:
    lease = ledger.execute(sql.leases_of, (f"[{beat.seq}]",)).fetchone()
    if lease is None or lease[4] != beat.fence:
        return Extended(held=False)
    _, _, _, _, _, n, worker, _, suspending, cancelling, carry, _, _ = lease
    term, ahead = span(beat.lease_for), None if beat.begun is None else not beat.begun
    ledger.execute(sql.extend_lease, (ledger.steady + term, term, beat.alone, ahead, beat.seq))
    if beat.checkpoint is not None or beat.progress is not None:
        kept = unpack_carry(carry)
        if beat.checkpoint is not None:
            kept.checkpoint = beat.checkpoint
        if beat.progress is not None:
            kept.progress, kept.message = beat.progress, beat.message
            _publish_progress(ledger, beat, n, worker)
        ledger.execute(sql.carry_lease, (pack_carry(kept), beat.seq))
    return Extended(held=True, cancel=cancelling is not None, suspend=bool(suspending))


def _publish_progress(ledger: Ledger, beat: Beat, n: int, worker: str) -> None:
    job = ledger.value(sql.id_of, (beat.seq,))
    ledger.publish(
        Event(
            n=n, kind="progress", job=job, at=ledger.at, by=worker, progress=beat.progress, note=beat.message
        )
    )  # fmt: skip


def reap(ledger: Ledger, request: Reap, asked_at: int) -> list[Lease]:
    """Take over expired leases. `asked_at` is the steady time of the call: a lease that expired while this request
    waited for the write lock is left alone, because its holder's heartbeats waited for the same lock."""
    lapsed = ledger.rows(sql.lapsed_leases, (asked_at, span(request.watched_for), request.limit))
    return [_take_over(ledger, seq, request) for (seq,) in lapsed]


def _take_over(ledger: Ledger, seq: int, request: Reap) -> Lease:
    row = job_moves.load(ledger, seq)
    assert row is not None
    row.fence += 1
    row.worker, row.call, row.reaped = request.worker, None, True
    row.term = span(request.lease_for)
    row.until = ledger.steady + row.term
    job_moves.record(ledger, row, "lease_expired", request.worker, fence=row.fence)
    ledger.execute(sql.take_over_lease, (row.fence, row.n, row.worker, row.until, row.term, row.history, seq))
    return row.as_lease()

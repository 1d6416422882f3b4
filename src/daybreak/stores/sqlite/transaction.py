"""One request inside a transaction: the tables of the kernel, in SQL.

SQLite has one writer at a time, so nothing needs a lock of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final

import apsw

from daybreak.core.model import JobSpec, Lease, Settlement, State
from daybreak.store.protocol import Claim, Inserted
from daybreak.stores.kernel.port import Head, HeldLease, Mate, NextDue
from daybreak.stores.kernel.row import Row
from daybreak.stores.sqlite import fast_path, rows
from daybreak.stores.sqlite.cache import StoreCache
from daybreak.stores.sqlite.changes import Changes
from daybreak.stores.sqlite.fast_path import CompanyHead, PlainLease, QueuedHead
from daybreak.stores.sqlite.flight_tables import FlightTables
from daybreak.stores.sqlite.rows import Values
from daybreak.stores.sqlite.statements import sql

_DELETE: Final = {
    State.QUEUED: sql.delete_ready,
    State.SCHEDULED: sql.delete_delayed,
    State.SUSPENDED: sql.delete_held,
    State.BLOCKED: sql.delete_held,
    State.RUNNING: sql.delete_lease,
    State.COMPLETED: sql.delete_done,
    State.FAILED: sql.delete_done,
    State.CANCELLED: sql.delete_done,
}
_INSERT: Final = {
    State.QUEUED: (sql.insert_ready, rows.ready_values),
    State.SCHEDULED: (sql.insert_delayed, rows.delayed_values),
    State.SUSPENDED: (sql.insert_held, rows.held_values),
    State.BLOCKED: (sql.insert_held, rows.held_values),
    State.RUNNING: (sql.insert_lease, rows.lease_values),
    State.COMPLETED: (sql.insert_done, rows.done_values),
    State.FAILED: (sql.insert_done, rows.done_values),
    State.CANCELLED: (sql.insert_done, rows.done_values),
}


@dataclass(slots=True)
class StoredLease(HeldLease):
    """A lease with what its job carries over, packed."""

    packed: bytes | None = None


def _place_of(row: Row, lane: int) -> Values:
    """The key of a job in the table that has it."""
    place = row.stored
    assert place is not None
    return (lane, place.band, place.ord, row.seq) if place.state is State.QUEUED else (row.seq,)


class SqliteTransaction(FlightTables):
    """One request in a transaction: the jobs and their leases."""

    def __init__(
        self,
        db: apsw.Connection,
        cache: StoreCache,
        wall: int,
        steady: int,
        before: Sequence[Changes] = (),
        *,
        fast_path: bool = True,
    ) -> None:
        super().__init__(db, cache, wall, steady, before)
        self._fast_path = fast_path
        self._head_cursors: list[Any] = []
        self._is_prefix = False  # whether the heads are the first jobs of their lanes, without a gap
        self._plain: dict[int, PlainLease] = {}
        self._completed: list[Values] = []  # jobs that the fast path completed, not written yet

    def changes(self) -> Changes:
        """What this request adds to the counts and to the feed."""
        return Changes(self.tallies, [self.totals], [line for _, line in self.published], self.topics)

    def close(self) -> None:
        """Break the reference cycle with the gauges, so that the rows are freed at once."""
        del self.gauges
        self._flights = None

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def read_rows(self, seqs: Sequence[int]) -> Iterable[Row]:
        self._write_completed()
        wanted, execute, spec = rows.seqs_parameter(seqs), self.execute, sql.load_spec
        self.load_lanes()
        names = self.cache.names
        found = [rows.leased_row(row, names[row[2]], execute, spec) for row in execute(sql.load_leased, (wanted,))]
        if len(found) < len(seqs):
            running = {row.seq for row in found}
            wanted = rows.seqs_parameter(seq for seq in seqs if seq not in running)
            found += [rows.other_row(row, names[row[2]], execute, spec) for row in execute(sql.load_others, (wanted,))]
        return found

    def seqs_of(self, ids: Sequence[str]) -> dict[str, int]:
        cache = self.cache
        if cache.last_id is None:
            cache.last_id = self.value(sql.last_id) or ""
        last = cache.last_id
        known = {}
        for job in ids:
            if job <= last and (seq := self.value(sql.seq_of_id, (job,))) is not None:
                known[job] = seq
        return known

    def next_seq(self) -> int:
        if self.cache.last_seq is None:
            self.cache.last_seq = int(self.value(sql.last_seq))
        self.cache.last_seq += 1
        return self.cache.last_seq

    def write_rows(self, changed: Sequence[Row]) -> None:
        self._next_due = None
        deletes: defaultdict[str, list[Values]] = defaultdict(list)
        inserts: defaultdict[str, list[Values]] = defaultdict(list)
        for row in changed:
            lane, before = self.lane(row.name), row.stored
            if before is None:
                inserts[sql.insert_job].append(rows.job_values(row, lane))
                if self.cache.last_id is not None and row.id > self.cache.last_id:
                    self.cache.last_id = row.id
            else:
                deletes[_DELETE[before.state]].append(_place_of(row, lane))
                rank = (row.band, row.ord, row.priority, row.expires)
                if rank != (before.band, before.ord, before.priority, before.expires):
                    inserts[sql.update_job].append((*rank, row.seq))
            statement, values = _INSERT[row.state]
            inserts[statement].append(values(row, lane))
        self._run_batches(deletes)
        self._run_batches(inserts)

    def delete_rows(self, dropped: Sequence[Row]) -> None:
        self._next_due = None
        deletes: defaultdict[str, list[Values]] = defaultdict(list)
        for row in dropped:
            assert row.stored is not None
            deletes[_DELETE[row.stored.state]].append(_place_of(row, self.lane(row.name)))
        deletes[sql.delete_job] = [(row.seq,) for row in dropped]
        # A sequence number is never used twice, even if the newest job is deleted.
        last = self.value(sql.last_seq)
        if any(row.seq == last for row in dropped):
            self.execute(sql.set_meta, ("seq", last))
        self._run_batches(deletes)

    def _run_batches(self, batches: Mapping[str, list[Values]]) -> None:
        for statement, values in batches.items():
            self.executemany(statement, values)

    # -- claims --------------------------------------------------------------------------------------------------------

    def heads(self, queues: Sequence[str], claim: Claim, limit: int, seen: Sequence[int]) -> dict[str, Iterator[Head]]:
        self._close_heads()
        known = frozenset(seen)
        self._is_prefix = not known and claim.job is None and not claim.batches  # it may pass jobs over
        return {queue: self._heads_of(queue, claim, limit, known) for queue in queues}

    def _heads_of(self, queue: str, claim: Claim, limit: int, seen: frozenset[int]) -> Iterator[QueuedHead]:
        """The queued jobs of the lanes that the worker knows, read one at a time and merged in rank order."""
        cursors = []
        for lane in self.lanes_of(queue, claim.tasks):
            if claim.job is None:
                cursors.append(self.execute(sql.claim_lane, (lane, limit + len(seen))))
            else:
                cursors.append(self.execute(sql.claim_job, (claim.job, lane)))
        self._head_cursors += cursors
        names = self.cache.names
        for found in cursors[0] if len(cursors) == 1 else merge(*cursors):
            if found[2] not in seen:
                yield QueuedHead(found, names[found[9]])

    def take_heads(self, heads: Sequence[Head]) -> dict[int, Row]:
        self._close_heads()  # what follows changes the tables that they read
        taken = {}
        for head in heads:
            assert isinstance(head, QueuedHead)
            row = self._rows.get(head.seq) or rows.queued_row(head.found, head.name)
            self.keep(row)
            taken[head.seq] = row
        return taken

    def company(self, head: Head, limit: int, seen: Collection[int]) -> Iterator[Mate]:
        wanted = (self.lane(head.name), head.batch, limit + len(seen) + 1)
        cursors = [self.execute(statement, wanted) for statement in (sql.company_queued, sql.company_blocked)]
        self._head_cursors += cursors
        return (
            CompanyHead._make(found) for found in merge(*cursors) if found[2] != head.seq and found[2] not in seen
        )  # fmt: skip

    def take_mates(self, mates: Sequence[Mate]) -> dict[int, Row]:
        self._close_heads()
        return super().take_mates(mates)

    def _close_heads(self) -> None:
        for cursor in self._head_cursors:
            cursor.close()
        self._head_cursors.clear()

    def leases_of_group(self, group: int) -> list[int]:
        return self.column(sql.leases_of_group, (group,))

    def leases_of_call(self, worker: str, call: str) -> list[int]:
        return self.column(sql.leases_of_call, (worker, call))

    # -- waiting jobs --------------------------------------------------------------------------------------------------

    def due(self, clock: int, until: int, limit: int) -> list[int]:
        return self.column(sql.due_jobs, (clock, until, limit))

    def overdue(self, limit: int) -> list[int]:
        return self.column(sql.overdue_jobs, (self.steady, limit))

    def next_due(self) -> NextDue:
        if self._next_due is None:
            self._next_due = NextDue(*self.all(sql.next_due)[0])
        return self._next_due

    def waiting(self, cause: str, limit: int) -> int:
        return int(self.value(sql.count_waiting, (cause, limit)))

    def waiting_by_lane(self, cause: str, limit: int) -> list[list[int]]:
        lanes = sorted(self.column(sql.waiting_lanes, (cause,)), key=self.name_of)
        return [self.column(sql.waiting_in_lane, (cause, lane, limit)) for lane in lanes]

    def last_in_rank(self, queue: str, cause: str | None) -> int | None:
        lasts = []
        for lane in self.lanes_of(queue, None):
            if cause is not None:
                lasts += self.all(sql.last_waiting_in_lane, (cause, lane))
            else:
                lasts += self.all(sql.last_in_lane, (lane,)) + self.all(sql.last_blocked_in_lane, (lane,))
        return max(lasts)[2] if lasts else None

    def stale_jobs(self, limit: int) -> list[int]:
        return self.column(sql.stale_jobs, (self.steady, limit))

    # -- leases --------------------------------------------------------------------------------------------------------

    def lapsed(self, until: int, longest: int, limit: int) -> list[int]:
        return self.column(sql.lapsed_leases, (until, longest, limit))

    def read_leases(self, seqs: Sequence[int]) -> dict[int, HeldLease]:
        return {
            seq: StoredLease(
                seq, job, fence, n, worker, cancelling is not None, bool(suspending), rows.is_detached(packed),
                packed=packed,
            )
            for seq, job, fence, n, worker, cancelling, suspending, packed in self.execute(
                sql.held_leases, (rows.seqs_parameter(seqs),)
            )
        }  # fmt: skip

    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        self.executemany(
            sql.extend_lease,
            [(self.steady + lease.term, lease.term, lease.alone, lease.ahead, lease.seq) for lease in leases],
        )
        for lease in leases:
            if lease.checkpoint is not None or lease.progress is not None:
                assert isinstance(lease, StoredLease)
                packed = rows.with_report(lease.packed, lease.checkpoint, lease.progress, lease.message)
                self.execute(sql.carry_lease, (packed, lease.seq))

    # -- the fast path -------------------------------------------------------------------------------------------------

    def insert_plain(self, specs: Sequence[JobSpec], *, bounded: bool) -> list[Inserted] | None:
        return fast_path.insert(self, specs, bounded=bounded) if self._fast_path else None

    def write_new(self, jobs: list[Values], ready: list[Values], delayed: list[Values]) -> None:
        """Write new jobs."""
        self._next_due = None
        self.executemany(sql.insert_job, jobs)
        if ready:
            self.executemany(sql.insert_ready, ready)
        if delayed:
            self.executemany(sql.insert_delayed, delayed)
        if self.cache.last_id is not None:
            self.cache.last_id = max(self.cache.last_id, *(job[1] for job in jobs))

    def lease_plain(self, heads: Sequence[Head], claim: Claim, begin: int | None) -> list[Lease] | None:
        queued = [head for head in heads if isinstance(head, QueuedHead) and head.is_plain]
        if not self._fast_path or not queued or len(queued) < len(heads) or any(h.seq in self._rows for h in heads):
            return None
        self._close_heads()
        return fast_path.lease(self, queued, claim, begin)

    def write_leased(self, places: list[Values], started: list[Values], leases: list[Values]) -> None:
        """Write leases of queued jobs: where they were, those that no longer expire, and the leases."""
        if self._is_prefix:
            for place in {place[0]: place for place in places}.values():  # the last of each lane
                self.execute(sql.take_from_lane, place)
        else:
            self.executemany(sql.delete_ready, places)
        if started:
            self.executemany(sql.update_job, started)
        self.executemany(sql.insert_lease, leases)

    def find_plain(self, settlements: Sequence[Settlement]) -> dict[int, PlainLease]:
        if not self._fast_path or self._rows:
            return {}
        self.load_lanes()
        self._plain = fast_path.find(self, settlements)
        return self._plain

    def complete_plain(self, settlement: Settlement) -> None:
        self._completed.append(fast_path.complete(self, self._plain[settlement.seq], settlement))

    def write(self) -> None:
        self._write_completed()
        super().write()

    def _write_completed(self) -> None:
        if self._completed:
            completed, self._completed = self._completed, []
            self.executemany(sql.delete_lease, [(row[0],) for row in completed])
            self.executemany(sql.insert_done, completed)
            fast_path.count_completed(self, [self._plain[row[0]] for row in completed])

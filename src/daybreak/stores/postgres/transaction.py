"""One transaction on the tables of PostgreSQL, and what it writes once, at its end: tallies, totals and events.

Locks are taken in this order, so that transactions cannot deadlock: the resource lock, queues, idempotency keys, unique
names, records, jobs, flights, and then other jobs of these flights, but only if nobody has them locked. A transaction
that finds out late that it needs the resource lock starts over with it (`faults.NeedsResourceLock`). Under the resource
lock, no other transaction changes a queued, blocked or suspended job that needs resources."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from daybreak.core.flights import is_flight_cause
from daybreak.core.model import FINAL, State
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.store.protocol import EVENTS_TOPIC, Claim
from daybreak.stores.kernel.packing import unpack_options
from daybreak.stores.kernel.port import Head, HeldLease, Mate, NextDue
from daybreak.stores.kernel.row import Row
from daybreak.stores.postgres import event_lines, faults, outbox
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Floats, Ints, Smallints, Texts
from daybreak.stores.postgres.flight_tables import FlightTables
from daybreak.stores.postgres.job_tables import TABLES, JobTables, cause_of
from daybreak.stores.postgres.lanes import Lanes
from daybreak.stores.postgres.resource_tables import ResourceTables
from daybreak.stores.postgres.rows import (
    BlockedMate,
    PostgresRow,
    QueuedHead,
    pack_carry,
    queued_row_of,
    row_of,
    text_bytes,
    unpack_carry,
)
from daybreak.stores.postgres.sequences import SequenceCache
from daybreak.stores.postgres.setting_tables import SettingTables
from daybreak.stores.postgres.statement_transaction import StatementRunner
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.totals import tally_columns, total_columns

EVENTS_PER_FEED_ROW: Final = 500
FIRST_MATES: Final = 32
ACCEPTED_PER_CLAIM: Final = 100  # jobs from the outbox, more than the claim asks for
LOCKED_IF_FREE: Final = frozenset({"ready", "delayed", "held"})
UNLOCKED_BESIDE_RESOURCES: Final = frozenset({State.QUEUED, State.BLOCKED, State.SUSPENDED})


@dataclass(slots=True)
class PackedLease(HeldLease):
    """A lease for a heartbeat, with what the job carries over."""

    packed_carry: bytes | None = None

    @property
    def carry(self) -> bytes | None:
        """What the job carries over, with the checkpoint of the heartbeat."""
        carry = unpack_carry(self.packed_carry)
        carry.checkpoint = self.checkpoint
        return pack_carry(carry)


class PostgresTransaction(FlightTables, SettingTables, ResourceTables):
    """One transaction of the general path."""

    row_type = PostgresRow

    def __init__(
        self,
        db: StatementRunner,
        sql: Statements,
        lanes: Lanes,
        time: int,
        *,
        offset: int = 0,
        is_given: bool = False,
        sequences: SequenceCache | None = None,
    ) -> None:
        super().__init__(db, sql, lanes, time, offset=offset, is_given=is_given, sequences=sequences)
        self._tables = JobTables(sql, db.run)
        self._fail_fast: dict[int, bool] = {}

    @property
    def deleted_rows(self) -> int:
        """How many rows were deleted from the tables `ready` and `delayed`."""
        return self._tables.deleted_rows

    def in_savepoint(self, do: Callable[[], None]) -> None:
        """Run `do` in a savepoint. If it raises, everything is as before, here and in the database."""
        self.write()
        if self._recounted:  # else only a gauge that has changed would be written
            self.write_gauges({})
        before, lanes, locked, rooms = self.mark(), self.lanes, set(self._locked), dict(self._rooms)
        self.run("SAVEPOINT tried")
        try:
            do()
            self.write()
        except Exception as error:
            with contextlib.suppress(Exception):  # the connection may be lost
                self.run("ROLLBACK TO SAVEPOINT tried")
            self.rewind(before)
            self.lanes, self._locked, self._are_lanes_loaded = lanes, locked, False
            self._waiting.clear()
            self._recounted.clear()
            self._rooms = rooms
            raise error from None
        self.run("RELEASE SAVEPOINT tried")

    # -- reading jobs --------------------------------------------------------------------------------------------------

    def peek_rows(self, seqs: Sequence[int]) -> list[Row]:
        if not seqs:
            return []
        return [row_of(values, self.name_of(values[2])) for values in self.rows(self.sql.load_jobs, (Bigints(seqs),))]

    def read_rows(self, seqs: Sequence[int]) -> list[Row]:
        """A job that moves while this transaction waits for its lock is read again."""
        while True:
            rows = self.peek_rows(seqs)
            unlocked: dict[str, list[int]] = {}
            for row in rows:
                if row.seq not in self._locked and not self._is_protected(row):
                    unlocked.setdefault(TABLES[row.state], []).append(row.seq)
            if not unlocked:
                return rows
            for table, found in sorted(unlocked.items()):
                self._locked.update(self.seqs(self.sql.text(f"lock_{table}"), Bigints(sorted(found))))

    def load_free(self, seqs: Iterable[int]) -> dict[int, Row]:
        """Only jobs that wait are locked in this way."""
        wanted = list(seqs)
        tables: dict[str, list[int]] = {}
        free = {seq for seq in wanted if seq in self._rows or seq in self._locked}
        for row in self.peek_rows([seq for seq in wanted if seq not in free]):
            if self._is_protected(row):
                free.add(row.seq)
            elif (table := TABLES[row.state]) in LOCKED_IF_FREE:
                tables.setdefault(table, []).append(row.seq)
        for table, found in sorted(tables.items()):
            free.update(self._lock_found(self.sql.text(f"lock_free_{table}"), Bigints(found)))
        return self.load([seq for seq in wanted if seq in free])

    def _is_protected(self, row: Row) -> bool:
        """Whether the resource lock is enough to change a job. For a job that needs resources it is required."""
        if not row.needs or row.state in FINAL:
            return False
        if not self._has_resource_lock:
            raise faults.NeedsResourceLock
        return row.state in UNLOCKED_BESIDE_RESOURCES

    def seqs_of(self, ids: Sequence[str]) -> dict[str, int]:
        return dict(self.rows(self.sql.seqs_of_ids, (Texts(ids),)))

    def _lock_found(self, statement: str, *params: object) -> list[int]:
        found = self.seqs(statement, *params)
        self._locked.update(found)
        return found

    def lapsed(self, until: int, longest: int, limit: int) -> list[int]:
        return self._lock_found(self.sql.lapsed_leases, until, longest, limit)

    def due(self, clock: int, until: int, limit: int) -> list[int]:
        return self._lock_found(self.sql.due_jobs, clock, until, limit)

    def stale_jobs(self, limit: int) -> list[int]:
        return self._lock_found(self.sql.stale_jobs, self.steady, limit)

    def overdue(self, limit: int) -> list[int]:
        return self.seqs(self.sql.overdue_jobs, self.steady, limit)

    def leases_of_call(self, worker: str, call: str) -> list[int]:
        return self.seqs(self.sql.leases_of_call, worker, call)

    def leases_of_group(self, group: int) -> list[int]:
        return self.seqs(self.sql.leases_of_group, group)

    def next_due(self) -> NextDue:
        return NextDue(*self.rows(self.sql.next_due)[0])

    def last_in_rank(self, queue: str, cause: str | None) -> int | None:
        lanes, sql = Ints(self.lanes_of(queue)), self.sql
        if cause is None:
            last: int | None = self.value(sql.last_in_lanes, (lanes,))
        else:
            last = self.value(sql.last_waiting_in_lanes, (lanes, cause))
        return last

    # -- claims --------------------------------------------------------------------------------------------------------

    def before_claim(self, claim: Claim) -> None:
        outbox.accept(self, claim.limit + ACCEPTED_PER_CLAIM)

    def heads(self, queues: Sequence[str], claim: Claim, limit: int, seen: Sequence[int]) -> dict[str, Iterator[Head]]:
        """Reads only what the rank needs, and locks nothing."""
        lanes = [lane for queue in queues for lane in self.lanes_of(queue, claim.tasks)]
        if not lanes:
            return {}
        if claim.job is not None:
            found = self.rows(self.sql.claim_job, (Ints(lanes), Bigints(seen), claim.job))
        else:
            if not self._has_resource_lock:  # then no job is parked
                limit -= MAX_PARKED_PER_CLAIM
            found = self.rows(self.sql.claim_lane, (Ints(lanes), Bigints(seen), limit))
        by_queue: dict[str, list[QueuedHead]] = {}
        for values in found:
            name = self.name_of(values[0])
            by_queue.setdefault(name[0], []).append(QueuedHead._make((*values, name)))
        if self._has_resource_lock:
            self._find_fail_fast([head for heads in by_queue.values() for head in heads if head.packed_needs])
        for heads in by_queue.values():
            heads.sort(key=_rank)
        return {queue: iter(heads) for queue, heads in by_queue.items()}

    def _find_fail_fast(self, heads: Sequence[QueuedHead]) -> None:
        """Read the options of the jobs that an open breaker stops, all together."""
        self.gauges.load_needs(heads)
        if stopped := [head.seq for head in heads if self.gauges.shut(head.needs) is not None]:
            self.fail_fast_among(stopped)

    def fail_fast_among(self, seqs: Sequence[int]) -> set[int]:
        known = self._fail_fast  # options never change
        if unknown := [seq for seq in seqs if seq not in known]:
            for seq, options in self.rows(self.sql.options_of, (Bigints(unknown),)):
                known[seq] = unpack_options(options).fail_fast
        return {seq for seq in seqs if known[seq]}

    def company(self, head: Head, limit: int, seen: Collection[int]) -> Iterator[Mate]:
        """Most calls need only the first few: the others are read if these were not enough."""
        done = 0
        for page in sorted({min(FIRST_MATES, limit), limit}):
            wanted = {
                "lane": self.lane(head.name), "batch": head.batch, "seen": Bigints([head.seq, *seen]), "limit": page
            }  # fmt: skip
            found = self.rows(self.sql.company, wanted)
            for *values, options, is_queued in found[done:]:
                mate = QueuedHead._make((*values, head.name))
                if is_queued:
                    yield mate
                else:
                    yield BlockedMate(mate.seq, mate.priority, mate.expires, options, mate.packed_carry)
            done = len(found)
            if done < page:
                return

    def take_mates(self, mates: Sequence[Mate]) -> dict[int, Row]:
        """Blocked ones change only under the resource lock, which the head of the call needs, too."""
        taken = self.take_heads([mate for mate in mates if isinstance(mate, QueuedHead)])
        taken |= self.load([mate.seq for mate in mates if isinstance(mate, BlockedMate)])
        return {mate.seq: taken[mate.seq] for mate in mates if mate.seq in taken}

    def take_heads(self, heads: Sequence[Head]) -> dict[int, Row]:
        taken = {head.seq: self._rows[head.seq] for head in heads if head.seq in self._rows}
        queued = {head.seq: head for head in heads if isinstance(head, QueuedHead) and head.seq not in taken}
        if not queued:
            return taken
        if needy := [head.seq for head in queued.values() if head.packed_needs is not None]:
            # A claim on the plain path may hold them briefly, until it sees that they need resources. It waits for
            # nobody meanwhile, so this cannot deadlock.
            self._lock_found(self.sql.lock_ready, Bigints(needy))
        lane, band, order, seq, *_ = zip(*queued.values(), strict=True)
        found = self.rows(self.sql.lock_ready_free, (Ints(lane), Smallints(band), Bigints(order), Bigints(seq)))
        for values in found:
            head = queued[values[0]]
            row = taken[head.seq] = queued_row_of(head, values, self.name_of(head.lane))
            self._locked.add(head.seq)
            self.keep(row)
        return taken

    # -- writing jobs --------------------------------------------------------------------------------------------------

    def expect_new(self, count: Callable[[], int]) -> None:
        self._count_new = count

    def next_seq(self) -> int:
        if self._count_new is not None:
            self._sequences.reserve(self.sql.next_seqs, self._count_new(), self.rows)
            self._count_new = None
        return self._sequences.take(self.sql.next_seqs, self.rows)

    def write_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.stored is None:
                self.lane(row.name)
                self._locked.add(row.seq)
            self._count_waiting(row, cause_of(row.state, row.cause))
        self._tables.write(rows, self.lanes.numbers)

    def delete_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._count_waiting(row, None)
            self._locked.discard(row.seq)
        self._write_spent_keys()
        self._tables.delete(rows, self.lanes.numbers)

    def _count_waiting(self, row: Row, after: str | None) -> None:
        before = None if row.stored is None else cause_of(row.stored.state, row.stored.cause)
        if before == after:
            return
        for cause, by in ((before, -1), (after, 1)):
            if cause is not None and not is_flight_cause(cause):
                self.gauges.load((cause,))
                self._waiting[cause] += by
                self._recounted.add(cause)

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def read_leases(self, seqs: Sequence[int]) -> dict[int, HeldLease]:
        return {
            seq: PackedLease(
                seq, job, fence, n, worker, is_cancelled, suspending, unpack_carry(carry).detached, packed_carry=carry
            )
            for seq, fence, n, worker, suspending, is_cancelled, carry, job in self.rows(
                self.sql.lock_beats, (Bigints(seqs),)
            )
        }

    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        self.run(
            self.sql.extend_lease,
            (
                Bigints([lease.seq for lease in leases]), Bigints([self.steady + lease.term for lease in leases]),
                Bigints([lease.term for lease in leases]), Bools([lease.alone for lease in leases]),
                Bools([lease.ahead for lease in leases]), Floats([lease.progress for lease in leases]),
                Blobs([text_bytes(lease.message) for lease in leases]),
                Bools([lease.checkpoint is not None for lease in leases]),
                Blobs([_carry(lease) for lease in leases]),
            ),
        )  # fmt: skip

    # -- events and commit ---------------------------------------------------------------------------------------------

    def purge_feed(self, before: int, limit: int) -> tuple[int, bool]:
        """Only up to the first younger row, so that a clock that was set back leaves no gap."""
        stale = list(takewhile(lambda row: row[1] <= before, self.rows(self.sql.oldest_feed, (limit,))))
        if stale:
            # Note how far the feed was purged: a follower that has not read that far has missed events.
            for name, latest in (("purged_xid", max(row[2] for row in stale)), ("purged_pos", stale[-1][0])):
                self.run(self.sql.raise_meta, (name, str(latest)))
            self.run(self.sql.purge_feed, (Bigints([pos for pos, *_ in stale]),))
        return sum(count for *_, count in stale), len(stale) == limit

    def flush(self) -> None:
        """Write what the whole transaction has in common. The feed comes last: its position is drawn while all locks
        are held."""
        self.write()
        self._write_spent_keys()
        self.gauges.save()
        if self._recounted:
            self.write_gauges({})
        self.write_rooms()
        if (columns := tally_columns(self.tallies, self.lanes.numbers)) is not None:
            self.run(self.sql.add_tally, columns)
        if self.totals:
            self.run(self.sql.add_total, total_columns(self.totals, self.lanes.numbers))
        lines = [(event.job, line) for event, line in self.published]
        for start in range(0, len(lines), EVENTS_PER_FEED_ROW):
            ids, runs, texts = event_lines.feed_row(lines[start : start + EVENTS_PER_FEED_ROW])
            self.run(self.sql.insert_feed, (self.steady, ids, Ints(runs), texts))
        if lines:
            self.topics.add(EVENTS_TOPIC)


def _rank(head: QueuedHead) -> tuple[int, int, int]:
    return head.band, head.ord, head.seq


def _carry(lease: HeldLease) -> bytes | None:
    return lease.carry if isinstance(lease, PackedLease) and lease.checkpoint is not None else None

"""Claim: lease the most urgent jobs of the tasks that a worker knows, in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from daybreak.core.events import Event
from daybreak.core.model import Lease, QueueSettings, State
from daybreak.core.rank import urgency, virtual_time
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.core.units import moment, span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim
from daybreak.stores.sqlite import gauge_rows, job_moves, pass_time, resource_queue
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import LaneName, Row, Values, pack_carry, spec_of, unpack_carry, unpack_options
from daybreak.stores.sqlite.statements import sql

# Module constants, because every access to an enum member is a function call.
QUEUED, RUNNING = State.QUEUED, State.RUNNING

Head = tuple[int, int, int, int, Values]  # band, ord, seq, lane, the rest of its row


class QueueLanes:
    """One queue during a claim: the lanes of the tasks that the worker knows, merged in rank order as far as needed."""

    def __init__(self, ledger: Ledger, queue: str, claim: Claim, served: int, index: int) -> None:
        self.settings: QueueSettings = ledger.settings(queue)
        self.served = served
        self.index = index
        self.room = self._room(ledger, queue)
        self._heads: list[tuple[int, int, int, int, Values, Iterator[Any]]] = []
        if min(claim.limit, self.room) > 0:
            for lane in ledger.lanes_of(queue, claim.tasks):
                rows = self._rows(ledger, lane, claim)
                if (row := next(rows, None)) is not None:
                    self._heads.append((row[0], row[1], row[2], lane, row, rows))
            heapify(self._heads)

    def _rows(self, ledger: Ledger, lane: int, claim: Claim) -> Iterator[Any]:
        if claim.job is not None:
            return ledger.execute(sql.claim_job, (claim.job, lane))
        # More than the limit: some jobs may have expired, or must wait for a resource.
        return ledger.execute(sql.claim_lane, (lane, claim.limit + PROMOTED_PER_CLAIM + MAX_PARKED_PER_CLAIM))

    def _room(self, ledger: Ledger, queue: str) -> int:
        if self.settings.paused:
            return 0
        if self.settings.max_running is None:
            return 1 << 60
        return self.settings.max_running - ledger.tallied(queue, (State.RUNNING,))

    def key(self, steady: int) -> tuple[int, int, int] | None:
        """The sort key of this queue among the queues of the claim; None if it has no job to give."""
        if self.room < 1 or not self._heads:
            return None
        head = self._heads[0]
        return (
            urgency(self.settings, head[4][9], head[1], steady),
            virtual_time(self.served, self.settings.weight),
            self.index,
        )

    def pop(self) -> tuple[int, Values]:
        _, _, _, lane, row, rows = self._heads[0]
        if (following := next(rows, None)) is None:
            heappop(self._heads)
        else:
            heapreplace(self._heads, (following[0], following[1], following[2], lane, following, rows))
        return lane, row

    def close(self) -> None:
        for *_, rows in self._heads:
            rows.close()  # type: ignore[attr-defined]


class Claiming:
    """One claim. `next_in` and `again` are set by `claim`."""

    def __init__(self, ledger: Ledger, claim: Claim) -> None:
        self._ledger = ledger
        self._claim = claim
        self._term = span(claim.lease_for)
        self._until = moment(ledger.steady + self._term)
        self._names: dict[int, LaneName] = {}
        self._rows: list[Values] = []
        self._last: dict[int, tuple[int, int, int]] = {}
        self._ended = 0
        self._parked = 0
        self._uses_resources = False  # whether a claimed job took a resource
        self.again = False
        self.next_in: timedelta | None = None

    def claim(self) -> list[Lease]:
        ledger, claim = self._ledger, self._claim
        coming = pass_time.coming(ledger)
        due = pass_time.promote(ledger, PROMOTED_PER_CLAIM, coming)
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        queues = [QueueLanes(ledger, queue, claim, had, index) for index, (queue, had) in enumerate(served.items())]
        try:
            leases, is_exhausted = self._take(queues)
        finally:
            for queue_lanes in queues:
                queue_lanes.close()
        self._write()
        is_freed = bool(ledger.freed) or (coming.look is not None and coming.look <= ledger.steady)
        is_offered = resource_queue.offer_freed(ledger)
        self.again = is_offered or (not is_exhausted or due == PROMOTED_PER_CLAIM)
        if len(leases) < claim.limit:
            is_as_before = not (due or is_freed or self._ended or self._parked or self._uses_resources)
            self.next_in = pass_time.next_in(ledger, coming if is_as_before else None)
        return leases

    def _take(self, queues: list[QueueLanes]) -> tuple[list[Lease], bool]:
        """Take jobs until a limit is reached. Returns the leases, and whether the queues have no more jobs."""
        steady, leases, begins = self._ledger.steady, self._leases_of_this_call(), self._claim.begins
        heads = [(key, queue) for queue in queues if (key := queue.key(steady)) is not None]
        heapify(heads)
        while (
            len(leases) < self._claim.limit and self._ended < PROMOTED_PER_CLAIM and self._parked < MAX_PARKED_PER_CLAIM
        ):
            if not heads:
                return leases, True
            _, queue = heappop(heads)
            lane, row = queue.pop()
            self._last[lane] = row[:3]
            if not self._is_set_aside(row):
                leases.append(self._lease(lane, row, ahead=begins is not None and len(leases) >= begins))
                queue.room -= 1
                queue.served += 1
            key = queue.key(steady)
            if key is not None:
                heappush(heads, (key, queue))
        return leases, False

    def _is_set_aside(self, found: Values) -> bool:
        """Expire a job that waited too long, or block one that must wait for a resource. This is written at once, not
        with the leases at the end: slots that are reserved for this job must not go to the jobs behind it."""
        ledger, seq, expires, options = self._ledger, found[2], found[12], found[18]
        if expires is not None and expires <= ledger.steady:
            job_moves.expire(ledger, self._load(seq))
            self._ended += 1
            return True
        if options is None or not (needs := unpack_options(options).resources):
            return False
        if (shut := gauge_rows.refusing(ledger, unpack_options(options))) is not None:
            resource_queue.fail_fast(ledger, self._load(seq), shut)
            self._ended += 1
            return True
        lacking = gauge_rows.lacking(ledger, needs, seq, found[9], is_retry=found[3] > 0)
        if lacking is not None:
            resource_queue.park(ledger, self._load(seq), lacking)
            self._parked += 1
        return lacking is not None

    def _load(self, seq: int) -> Row:
        row = job_moves.load(self._ledger, seq)
        assert row is not None
        return row

    def _leases_of_this_call(self) -> list[Lease]:
        ledger, claim = self._ledger, self._claim
        if not claim.repeats or claim.call is None:
            return []
        rows = (job_moves.load(ledger, seq) for (seq,) in ledger.rows(sql.leases_of_call, (claim.worker, claim.call)))
        return [row.as_lease() for row in rows if row is not None]

    def _lease(self, lane: int, row: Values, *, ahead: bool) -> Lease:
        ledger, claim = self._ledger, self._claim
        (_, _, seq, attempt, fence, n, carry, history, id_, priority, asked, created, expires, by, run, owner, key,
         uniq, options, extra, args) = row  # fmt: skip
        name = self._names.get(lane) or self._names.setdefault(lane, ledger.name_of(lane))
        attempt, fence, n = attempt + 1, fence + 1, n + 1
        line = ledger.publish(
            Event(
                n=n, kind="started", job=id_, at=ledger.at, by=claim.worker, state=RUNNING, attempt=attempt,
                fence=fence,
            )
        )  # fmt: skip
        lost = timeouts = 0
        checkpoint = packed_needs = None
        if carry is not None:
            brought = unpack_carry(carry)
            lost, timeouts, checkpoint = brought.lost, brought.timeouts, brought.checkpoint
            brought.note, brought.message, brought.started, brought.progress = "", "", None, None
            brought.blocked_since = None
            carry = pack_carry(brought)
        if options is not None and (needs := unpack_options(options).resources):
            gauge_rows.release_reservation(ledger, needs, seq)
            gauge_rows.take(ledger, needs, is_retry=attempt > 1)
            packed_needs = gauge_rows.pack_needs(needs)
            self._uses_resources = True
        if expires is not None:
            ledger.execute(sql.forget_expiry, (seq,))
        self._rows.append((
            seq, lane, priority, uniq, attempt, fence, n, claim.worker, ledger.steady + self._term, self._term,
            ledger.wall, claim.call, carry, job_moves.append_history(ledger, seq, n, history, line), packed_needs,
            ahead,
        ))  # fmt: skip
        return Lease(
            seq=seq,
            spec=spec_of(name, id_, asked, by, run, owner, key, uniq, options, extra, args),
            fence=fence,
            attempt=attempt,
            priority=priority,
            worker=claim.worker,
            until=self._until,
            lease_for=claim.lease_for,
            started_at=ledger.at,
            created_at=moment(created),
            lost=lost,
            timeouts=timeouts,
            checkpoint=checkpoint,
            call=claim.call,
            begun=not ahead,
        )

    def _write(self) -> None:
        ledger = self._ledger
        take = sql.take_from_lane if self._claim.job is None else sql.delete_ready
        for lane, rank in self._last.items():
            ledger.execute(take, (lane, *rank))
        if self._rows:
            ledger.executemany(sql.insert_lease, self._rows)
            for (lane, priority), n in Counter((row[1], row[2]) for row in self._rows).items():
                ledger.tally(lane, priority, QUEUED, -n)
                ledger.tally(lane, priority, RUNNING, n)

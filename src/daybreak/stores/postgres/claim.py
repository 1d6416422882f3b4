"""Claim: the most urgent jobs that a worker knows, where limits, resources or what is due make it more than plain."""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from daybreak.core.events import Event
from daybreak.core.model import Lease, Need, QueueSettings, State
from daybreak.core.rank import turn, urgency
from daybreak.core.resource_gauge import PARKED_PER_CLAIM
from daybreak.core.units import moment, span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim
from daybreak.stores.postgres import event_lines, job_moves, pass_time, resource_queue
from daybreak.stores.postgres.arrays import Bigints, Ints, Smallints
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, Values, pack_carry, spec_of, unpack_carry, unpack_needs


class Head(NamedTuple):
    """Where a queued job stands, as the statement `claim_lane` says."""

    lane: int
    band: int
    ord: int
    seq: int
    priority: int
    expires: int | None
    attempt: int
    shared: str | None
    brought: bytes | None

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_needs(self.shared)

    @property
    def since(self) -> int | None:
        return unpack_carry(self.brought).since

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.band, self.ord, self.seq


class Body(NamedTuple):
    """What else a lease carries, as the statement `lock_ready_free` says."""

    seq: int
    attempt: int
    fence: int
    n: int
    carry: bytes | None
    history: str | None
    id: str
    asked: int
    created: int
    by: str
    run: str | None
    owner: str | None
    key: str | None
    uniq: str | None
    options: bytes | None
    extra: bytes | None
    args: bytes


class Candidate(NamedTuple):
    """A head whose turn it is, and what is to become of it: `lacking` is what it must wait for. One that is overdue, or
    will not wait for a breaker that is open, ends here."""

    line: QueueLanes
    head: Head
    is_overdue: bool = False
    fails_fast: bool = False
    lacking: str | None = None

    @property
    def ends(self) -> bool:
        return self.is_overdue or self.fails_fast


class QueueLanes:
    """One queue as its claimant sees it: the lanes of the tasks it knows, merged into rank order."""

    def __init__(self, queue: str, settings: QueueSettings, served: int, index: int, room: int) -> None:
        self.queue = queue
        self.settings = settings
        self.served = served
        self.index = index
        self.room = room
        self.lanes: list[int] = []
        self.heads: deque[Head] = deque()

    def key(self, steady: int) -> tuple[int, int, int] | None:
        """Where this queue stands among others; None when it has nothing to give."""
        if self.room < 1 or not self.heads:
            return None
        head = self.heads[0]
        return (
            urgency(self.settings, head.priority, head.ord, steady),
            turn(self.served, self.settings.weight),
            self.index,
        )


class Claiming:
    def __init__(self, ledger: Ledger, claim: Claim) -> None:
        self._ledger = ledger
        self._claim = claim
        self._term = span(claim.lease_for)
        self._met: list[int] = []  # jobs that were chosen: ours by now, or another's
        self._rows: list[Values] = []
        self._taken: list[Head] = []
        self._parked: list[Row] = []
        self._ended = 0
        self._hasty: set[int] = set()  # jobs at an open breaker for which they will not wait
        self.again = False
        self.next_in: timedelta | None = None

    def claim(self) -> list[Lease]:
        ledger, claim = self._ledger, self._claim
        due = pass_time.promote(ledger, PROMOTED_PER_CLAIM)
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        lines = self._lines(served)
        leases = self._taken_before()
        is_dry = False
        while self._may_take(len(leases), self._ended, len(self._parked)) and not is_dry:
            self._fill(lines)
            is_dry = not self._take(lines, leases)
        self._write()
        self.again = due == PROMOTED_PER_CLAIM if is_dry else True
        self.again = resource_queue.offer_freed(ledger) or self.again
        if len(leases) < claim.limit:
            self.next_in = pass_time.next_in(ledger)
        return leases

    def _may_take(self, leased: int, ended: int, parked: int) -> bool:
        return leased < self._claim.limit and ended < PROMOTED_PER_CLAIM and parked < PARKED_PER_CLAIM

    def _lines(self, served: dict[str, int]) -> list[QueueLanes]:
        ledger, claim = self._ledger, self._claim
        ledger.know_settings(served)
        limited = sorted(queue for queue in served if ledger.settings(queue).max_running is not None)
        ledger.lock_limits(limited)
        running = ledger.tallied(limited, (State.RUNNING,)) if limited else {}
        lines = []
        for index, (queue, had) in enumerate(served.items()):
            settings = ledger.settings(queue)
            room = 1 << 60
            if settings.paused:
                room = 0
            elif settings.max_running is not None:
                # A limit set since we looked: its row was not locked, so this queue gives nothing this time.
                room = settings.max_running - running[queue] if queue in running else 0
            line = QueueLanes(queue, settings, had, index, room)
            if room > 0 and claim.limit > 0:
                line.lanes = ledger.lanes_of(queue, claim.tasks)
            lines.append(line)
        return lines

    def _fill(self, lines: list[QueueLanes]) -> None:
        """See what stands first now. A little beyond the limit: some may turn out expired, or have to wait."""
        wanted = [lane for line in lines if line.room > 0 for lane in line.lanes]
        by_lane: dict[int, list[Head]] = {lane: [] for lane in wanted}
        if wanted:
            limit = self._claim.limit + PROMOTED_PER_CLAIM
            if self._ledger.is_alone:
                limit += PARKED_PER_CLAIM
            for row in self._ledger.rows(self._ledger.sql.claim_lane, (Ints(wanted), Bigints(self._met), limit)):
                by_lane[row[0]].append(Head(*row))
        for line in lines:
            heads = [head for lane in line.lanes for head in by_lane.get(lane, ())]
            line.heads = deque(sorted(heads, key=lambda head: head.rank))
        if self._ledger.is_alone:
            self._find_hasty([head for heads in by_lane.values() for head in heads if head.shared is not None])

    def _find_hasty(self, heads: list[Head]) -> None:
        """Their options say so, which are asked for only where a breaker is open."""
        gauges, steady = self._ledger.gauges, self._ledger.steady
        gauges.know_needs(heads)
        stopped = [head.seq for head in heads if gauges.shut(head.needs, steady) is not None]
        self._hasty.update(resource_queue.hasty(self._ledger, stopped))

    def _take(self, lines: list[QueueLanes], leases: list[Lease]) -> bool:
        """Choose in order, then lock what was chosen and no more: a lock on more would make others pass over jobs
        that nobody takes. False when there is nothing left to choose."""
        steady = self._ledger.steady
        before = [(line, line.room, line.served) for line in lines]
        waiting = [(key, line) for line in lines if (key := line.key(steady)) is not None]
        heapify(waiting)
        chosen: list[Candidate] = []
        leased, ended, parked = len(leases), self._ended, len(self._parked)
        while self._may_take(leased, ended, parked) and waiting:
            _, line = heappop(waiting)
            one = self._judge(line, line.heads.popleft())
            chosen.append(one)
            if one.ends:
                ended += 1
                if one.head.shared is not None:
                    break  # what it leaves to others changes the fate of those to come
            elif one.lacking is not None:
                parked += 1
            else:
                leased += 1
                line.room -= 1
                line.served += 1
            if (key := line.key(steady)) is not None:
                heappush(waiting, (key, line))
        for line, room, served in before:
            line.room, line.served = room, served
        locked = self._lock([one.head for one in chosen if one.lacking is None])
        parking = [one.head.seq for one in chosen if one.lacking is not None]
        rows = job_moves.look(self._ledger, parking) if parking else {}
        begins = self._claim.begins
        for one in chosen:
            line, head = one.line, one.head
            self._met.append(head.seq)
            if one.lacking is not None:
                resource_queue.block(self._ledger, rows[head.seq], one.lacking)
                self._parked.append(rows[head.seq])
            elif (body := locked.get(head.seq)) is None:
                continue
            elif one.ends:
                self._end(one)
            else:
                leases.append(self._lease(head, body, ahead=begins is not None and len(leases) >= begins))
                line.room -= 1
                line.served += 1
        return bool(chosen)

    def _judge(self, line: QueueLanes, head: Head) -> Candidate:
        """Nobody but us can take or move a job that needs resources, so what is decided of it here holds."""
        steady = self._ledger.steady
        is_overdue = head.expires is not None and head.expires <= steady
        if head.shared is None:
            return Candidate(line, head, is_overdue)
        gauges = self._ledger.gauges
        if is_overdue or head.seq in self._hasty:
            return Candidate(line, head, is_overdue, fails_fast=not is_overdue)
        lacking = gauges.lacking(head, steady)
        if lacking is not None:
            gauges.park(head, lacking, steady, was_queued=True)
        else:
            gauges.take(head, steady, self._ledger.wall)
        return Candidate(line, head, lacking=lacking)

    def _lock(self, heads: list[Head]) -> dict[int, Body]:
        """Those that are ours now."""
        if not heads:
            return {}
        if shared := [head.seq for head in heads if head.shared is not None]:
            # A fast claim may have them for a moment, until it sees what they are; it waits for nobody meanwhile.
            self._ledger.rows(self._ledger.sql.lock_ready, (Bigints(shared),))
        found = [Body(*row) for row in self._ledger.rows(self._ledger.sql.lock_ready_free, _columns(heads))]
        self._ledger.locked.update((body.seq, State.QUEUED) for body in found)
        return {body.seq: body for body in found}

    def _end(self, one: Candidate) -> None:
        self._ended += 1
        row = job_moves.load(self._ledger, one.head.seq)
        assert row is not None
        if one.fails_fast:
            resource_queue.fail_fast(self._ledger, row)
        else:
            job_moves.expire(self._ledger, row)

    def _taken_before(self) -> list[Lease]:
        ledger, claim = self._ledger, self._claim
        if not claim.repeats or claim.call is None:
            return []
        seqs = [seq for (seq,) in ledger.rows(ledger.sql.leases_of_call, (claim.worker, claim.call))]
        rows = job_moves.load_all(ledger, seqs)
        return [
            row.as_lease()
            for _, row in sorted(rows.items())
            if row.state is State.RUNNING and (row.worker, row.call) == (claim.worker, claim.call)
        ]

    def _lease(self, head: Head, body: Body, *, ahead: bool) -> Lease:
        ledger, claim = self._ledger, self._claim
        attempt, fence, n = body.attempt + 1, body.fence + 1, body.n + 1
        spec = spec_of(
            ledger.name_of(head.lane), body.id, body.asked, body.by, body.run, body.owner, body.key, body.uniq,
            body.options, body.extra, body.args,
        )  # fmt: skip
        carry, packed = unpack_carry(body.carry), body.carry
        if carry.since is not None:
            carry.since = None
            packed = pack_carry(carry)
        if spec.holder is not None:
            fence = ledger.gauges.next_fence(head.needs, fence)
        told = ledger.tell(
            Event(
                n=n, kind="started", job=body.id, at=ledger.at, by=claim.worker, state=State.RUNNING, attempt=attempt,
                fence=fence,
            )
        )  # fmt: skip
        history = event_lines.joined(body.history, told)
        if event_lines.may_shorten(n):
            history = event_lines.shorten(job_moves.look(ledger, [head.seq])[head.seq].first_event(), history)
        self._taken.append(head)
        self._rows.append((
            head.seq, head.lane, head.priority, body.uniq, attempt, fence, n, claim.worker, ledger.steady + self._term,
            self._term, ledger.wall, claim.call, packed, history, head.shared, ahead,
        ))  # fmt: skip
        return Lease(
            seq=head.seq,
            spec=spec,
            fence=fence,
            attempt=attempt,
            priority=head.priority,
            worker=claim.worker,
            until=moment(ledger.steady + self._term),
            lease_for=claim.lease_for,
            started_at=ledger.at,
            created_at=moment(body.created),
            lost=carry.lost,
            timeouts=carry.timeouts,
            checkpoint=carry.checkpoint,
            call=claim.call,
            begun=not ahead,
        )  # fmt: skip

    def _write(self) -> None:
        ledger, sql = self._ledger, self._ledger.sql
        job_moves.move_all(ledger, self._parked, State.BLOCKED)
        if not self._rows:
            return
        ledger.run(sql.delete_ready, _columns(self._taken))
        job_moves.enter_leases(ledger, self._rows)
        if first := [head.seq for head in self._taken if head.expires is not None]:
            ledger.run(sql.forget_expiry, (Bigints(first),))
        for (of, at), count in Counter((head.lane, head.priority) for head in self._taken).items():
            ledger.tally(of, at, State.QUEUED, -count)


def _columns(heads: list[Head]) -> tuple[Any, ...]:
    return (
        Ints([h.lane for h in heads]), Smallints([h.band for h in heads]), Bigints([h.ord for h in heads]),
        Bigints([h.seq for h in heads]),
    )  # fmt: skip

"""Claim on the general path: lease the most urgent jobs whose tasks the worker knows, with limits and resources."""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from daybreak.core.events import Event
from daybreak.core.model import Lease, Need, QueueSettings, State
from daybreak.core.rank import urgency, virtual_time
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.core.units import moment, span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim
from daybreak.stores.postgres import event_lines, job_moves, pass_time, resource_queue
from daybreak.stores.postgres.arrays import Bigints, Ints, Smallints
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, Values, pack_carry, spec_of, unpack_carry, unpack_needs


class Head(NamedTuple):
    """The rank of a queued job: a row of the statement `claim_lane`."""

    lane: int
    band: int
    ord: int
    seq: int
    priority: int
    expires: int | None
    attempt: int
    packed_needs: str | None
    packed_carry: bytes | None

    @property
    def needs(self) -> tuple[Need, ...]:
        return unpack_needs(self.packed_needs)

    @property
    def since(self) -> int | None:
        return unpack_carry(self.packed_carry).since

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.band, self.ord, self.seq


class Body(NamedTuple):
    """The rest of what a lease carries: a row of the statement `lock_ready_free`."""

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
    """The next job in order and what the claim does with it. `lacking` names the resource that it must wait for. A job
    that is overdue ends here, and so does one that fails fast at an open breaker."""

    queue: QueueLanes
    head: Head
    is_overdue: bool = False
    fails_fast: bool = False
    lacking: str | None = None

    @property
    def ends(self) -> bool:
        return self.is_overdue or self.fails_fast


class QueueLanes:
    """One queue in a claim: the lanes of the tasks that the worker knows, merged into rank order."""

    def __init__(self, name: str, settings: QueueSettings, served: int, index: int, room: int) -> None:
        self.name = name
        self.settings = settings
        self.served = served
        self.index = index
        self.room = room
        self.lanes: list[int] = []
        self.heads: deque[Head] = deque()

    def key(self, steady: int) -> tuple[int, int, int] | None:
        """The sort key of this queue among the others; None if it has no job to give."""
        if self.room < 1 or not self.heads:
            return None
        head = self.heads[0]
        return (
            urgency(self.settings, head.priority, head.ord, steady),
            virtual_time(self.served, self.settings.weight),
            self.index,
        )


class Claiming:
    """One claim in one transaction. `again`: there may be more; `next_in`: when the next job falls due."""

    def __init__(self, ledger: Ledger, claim: Claim) -> None:
        self._ledger = ledger
        self._claim = claim
        self._term = span(claim.lease_for)
        self._seen: list[int] = []  # jobs that were chosen already, whether this claim or another one got them
        self._rows: list[Values] = []
        self._taken: list[Head] = []
        self._parked: list[Row] = []
        self._ended = 0
        self._fail_fast_seqs: set[int] = set()  # jobs that fail fast at an open breaker
        self.again = False
        self.next_in: timedelta | None = None

    def claim(self) -> list[Lease]:
        ledger, claim = self._ledger, self._claim
        due = pass_time.promote(ledger, PROMOTED_PER_CLAIM)
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        queues = self._open_queues(served)
        leases = self._leases_of_this_call()
        is_exhausted = False
        while self._may_take(len(leases), self._ended, len(self._parked)) and not is_exhausted:
            self._read_heads(queues)
            is_exhausted = not self._take(queues, leases)
        self._write()
        self.again = due == PROMOTED_PER_CLAIM if is_exhausted else True
        self.again = resource_queue.offer_freed(ledger) or self.again
        if len(leases) < claim.limit:
            self.next_in = pass_time.next_in(ledger)
        return leases

    def _may_take(self, leased: int, ended: int, parked: int) -> bool:
        return leased < self._claim.limit and ended < PROMOTED_PER_CLAIM and parked < MAX_PARKED_PER_CLAIM

    def _open_queues(self, served: dict[str, int]) -> list[QueueLanes]:
        ledger, claim = self._ledger, self._claim
        ledger.load_settings(served)
        limited = sorted(name for name in served if ledger.settings(name).max_running is not None)
        ledger.lock_limits(limited)
        running = ledger.tallied(limited, (State.RUNNING,)) if limited else {}
        queues = []
        for index, (name, served_before) in enumerate(served.items()):
            settings = ledger.settings(name)
            room = 1 << 60
            if settings.paused:
                room = 0
            elif settings.max_running is not None:
                # If the limit was set after the first read, the queue's row is not locked: claim nothing from it now.
                room = settings.max_running - running[name] if name in running else 0
            queue = QueueLanes(name, settings, served_before, index, room)
            if room > 0 and claim.limit > 0:
                queue.lanes = ledger.lanes_of(name, claim.tasks)
            queues.append(queue)
        return queues

    def _read_heads(self, queues: list[QueueLanes]) -> None:
        """Read the heads of all lanes. A few more than the limit: some may be expired or have to wait."""
        wanted = [lane for queue in queues if queue.room > 0 for lane in queue.lanes]
        by_lane: dict[int, list[Head]] = {lane: [] for lane in wanted}
        if wanted:
            for row in self._ledger.rows(*self._heads_query(wanted)):
                by_lane[row[0]].append(Head(*row))
        for queue in queues:
            heads = [head for lane in queue.lanes for head in by_lane.get(lane, ())]
            queue.heads = deque(sorted(heads, key=lambda head: head.rank))
        if self._ledger.has_resource_lock:
            self._find_fail_fast(
                [head for heads in by_lane.values() for head in heads if head.packed_needs is not None]
            )

    def _heads_query(self, lanes: list[int]) -> tuple[str, tuple[Any, ...]]:
        ledger, claim = self._ledger, self._claim
        if claim.job is not None:
            return ledger.sql.claim_job, (Ints(lanes), Bigints(self._seen), claim.job)
        limit = claim.limit + PROMOTED_PER_CLAIM
        if ledger.has_resource_lock:
            limit += MAX_PARKED_PER_CLAIM
        return ledger.sql.claim_lane, (Ints(lanes), Bigints(self._seen), limit)

    def _find_fail_fast(self, heads: list[Head]) -> None:
        """Find the jobs that fail fast. Their options are read only where a breaker is open."""
        gauges, steady = self._ledger.gauges, self._ledger.steady
        gauges.load_needs(heads)
        stopped = [head.seq for head in heads if gauges.shut(head.needs, steady) is not None]
        self._fail_fast_seqs.update(resource_queue.find_fail_fast(self._ledger, stopped))

    def _take(self, queues: list[QueueLanes], leases: list[Lease]) -> bool:
        """Choose in order, then lock only the chosen jobs: other claims skip locked jobs, so a lock on more would hide
        jobs that nobody takes. False if there is nothing left to choose."""
        steady = self._ledger.steady
        before = [(queue, queue.room, queue.served) for queue in queues]
        waiting = [(key, queue) for queue in queues if (key := queue.key(steady)) is not None]
        heapify(waiting)
        chosen: list[Candidate] = []
        leased, ended, parked = len(leases), self._ended, len(self._parked)
        while self._may_take(leased, ended, parked) and waiting:
            _, queue = heappop(waiting)
            candidate = self._decide(queue, queue.heads.popleft())
            chosen.append(candidate)
            if candidate.ends:
                ended += 1
                if candidate.head.packed_needs is not None:
                    break  # its freed resources change the decision on the next jobs
            elif candidate.lacking is not None:
                parked += 1
            else:
                leased += 1
                queue.room -= 1
                queue.served += 1
            if (key := queue.key(steady)) is not None:
                heappush(waiting, (key, queue))
        for queue, room, served in before:
            queue.room, queue.served = room, served
        locked = self._lock([candidate.head for candidate in chosen if candidate.lacking is None])
        parking = [candidate.head.seq for candidate in chosen if candidate.lacking is not None]
        rows = job_moves.read_rows(self._ledger, parking) if parking else {}
        begins = self._claim.begins
        for candidate in chosen:
            queue, head = candidate.queue, candidate.head
            self._seen.append(head.seq)
            if candidate.lacking is not None:
                resource_queue.block(self._ledger, rows[head.seq], candidate.lacking)
                self._parked.append(rows[head.seq])
            elif (body := locked.get(head.seq)) is None:
                continue
            elif candidate.ends:
                self._end(candidate)
            else:
                leases.append(self._lease(head, body, ahead=begins is not None and len(leases) >= begins))
                queue.room -= 1
                queue.served += 1
        return bool(chosen)

    def _decide(self, queue: QueueLanes, head: Head) -> Candidate:
        """Decide what to do with a job. The resource lock keeps others from taking or moving a job that needs
        resources, so the decision holds."""
        steady = self._ledger.steady
        is_overdue = head.expires is not None and head.expires <= steady
        if head.packed_needs is None:
            return Candidate(queue, head, is_overdue)
        gauges = self._ledger.gauges
        if is_overdue or head.seq in self._fail_fast_seqs:
            return Candidate(queue, head, is_overdue, fails_fast=not is_overdue)
        lacking = gauges.lacking(head, steady)
        if lacking is not None:
            gauges.park(head, lacking, steady, was_queued=True)
        else:
            gauges.take(head, steady, self._ledger.wall)
        return Candidate(queue, head, lacking=lacking)

    def _lock(self, heads: list[Head]) -> dict[int, Body]:
        """Lock the jobs; returns those that no other claim holds."""
        if not heads:
            return {}
        if packed_needs := [head.seq for head in heads if head.packed_needs is not None]:
            # A claim on the plain path may hold them briefly, until it sees that they need resources. It waits for
            # nobody meanwhile, so this cannot deadlock.
            self._ledger.rows(self._ledger.sql.lock_ready, (Bigints(packed_needs),))
        found = [Body(*row) for row in self._ledger.rows(self._ledger.sql.lock_ready_free, _columns(heads))]
        self._ledger.locked.update((body.seq, State.QUEUED) for body in found)
        return {body.seq: body for body in found}

    def _end(self, candidate: Candidate) -> None:
        self._ended += 1
        row = job_moves.load(self._ledger, candidate.head.seq)
        assert row is not None
        if candidate.fails_fast:
            resource_queue.fail_fast(self._ledger, row)
        else:
            job_moves.expire(self._ledger, row)

    def _leases_of_this_call(self) -> list[Lease]:
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
        event_line = ledger.publish(
            Event(
                n=n, kind="started", job=body.id, at=ledger.at, by=claim.worker, state=State.RUNNING, attempt=attempt,
                fence=fence,
            )
        )  # fmt: skip
        history = event_lines.joined(body.history, event_line)
        if event_lines.may_shorten(n):
            history = event_lines.shorten(job_moves.read_rows(ledger, [head.seq])[head.seq].first_event(), history)
        self._taken.append(head)
        self._rows.append((
            head.seq, head.lane, head.priority, body.uniq, attempt, fence, n, claim.worker, ledger.steady + self._term,
            self._term, ledger.wall, claim.call, packed, history, head.packed_needs, ahead,
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
        if expiring := [head.seq for head in self._taken if head.expires is not None]:
            ledger.run(sql.forget_expiry, (Bigints(expiring),))
        for (of, at), count in Counter((head.lane, head.priority) for head in self._taken).items():
            ledger.tally(of, at, State.QUEUED, -count)


def _columns(heads: list[Head]) -> tuple[Any, ...]:
    return (
        Ints([h.lane for h in heads]), Smallints([h.band for h in heads]), Bigints([h.ord for h in heads]),
        Bigints([h.seq for h in heads]),
    )  # fmt: skip

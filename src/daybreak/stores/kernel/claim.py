"""Claim: lease the most urgent jobs of the tasks that a worker knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from daybreak.core.model import Lease, QueueSettings, State
from daybreak.core.rank import urgency, virtual_time
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.core.units import span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim
from daybreak.stores.kernel import moves, pass_time, resource_queue
from daybreak.stores.kernel.port import Head
from daybreak.stores.kernel.transaction import Transaction

UNLIMITED_ROOM = 1 << 60


class QueueTurn:
    """One queue of a claim: its jobs in rank order, and how many of them it may still give."""

    def __init__(self, name: str, settings: QueueSettings, served: int, index: int, room: int) -> None:
        self.name = name
        self.settings = settings
        self.served = served
        self.index = index
        self.room = room
        self.head: Head | None = None
        self._heads: Iterator[Head] = iter(())

    def read(self, heads: Iterator[Head]) -> None:
        self.head, self._heads = None, heads

    def pop(self) -> Head:
        head, self.head = self.head, None
        assert head is not None
        return head

    def can_give(self) -> bool:
        """Whether the queue has a job to give. Only this reads the next job."""
        if self.room < 1:
            return False
        if self.head is None:
            self.head = next(self._heads, None)
        return self.head is not None

    def key(self, steady: int) -> tuple[int, int, int]:
        """The sort key of this queue among the queues of the claim."""
        assert self.head is not None
        return (
            urgency(self.settings, self.head.priority, self.head.rank.order, steady),
            virtual_time(self.served, self.settings.weight),
            self.index,
        )


def turns(queues: Iterable[QueueTurn], steady: int) -> Iterator[QueueTurn]:
    """The queue whose turn it is, until none has a job to give."""
    waiting = [queue for queue in queues if queue.can_give()]
    if len(waiting) == 1:
        [queue] = waiting
        while queue.can_give():
            yield queue
        return
    order = [(queue.key(steady), queue) for queue in waiting]
    heapify(order)
    while order:
        _, queue = heappop(order)
        yield queue
        if queue.can_give():
            heappush(order, (queue.key(steady), queue))


class Candidate(NamedTuple):
    """The next job in order, and what the claim does with it. `lacking` is the resource that it must wait for. A job
    that is overdue ends here, and so does one that fails fast at an open breaker."""

    queue: QueueTurn
    head: Head
    is_overdue: bool = False
    fails_fast: bool = False
    lacking: str | None = None

    @property
    def ends(self) -> bool:
        return self.is_overdue or self.fails_fast


class Claiming:
    """One claim. `again`: there may be more; `next_in`: when the next job falls due."""

    def __init__(self, tx: Transaction, claim: Claim) -> None:
        self._tx = tx
        self._claim = claim
        self._seen: list[int] = []  # jobs that were chosen already, whether this claim or another one got them
        self._leases: list[Lease] = []
        self._ended = 0
        self._parked = 0
        self.again = False
        self.next_in: timedelta | None = None

    def claim(self) -> list[Lease]:
        """The leases, in the order in which the jobs were chosen."""
        tx, claim = self._tx, self._claim
        due = pass_time.promote(tx, PROMOTED_PER_CLAIM)
        queues = self._open_queues()
        self._leases = self._leases_of_this_call()
        is_exhausted = False
        while not is_exhausted and self._may_take(len(self._leases), self._ended, self._parked):
            self._read_heads(queues)
            is_exhausted = not self._take(queues)
        self.again = due == PROMOTED_PER_CLAIM if is_exhausted else True
        self.again = resource_queue.offer_freed(tx) or self.again
        if len(self._leases) < claim.limit:
            self.next_in = pass_time.next_in(tx)
        return self._leases

    def _may_take(self, leased: int, ended: int, parked: int) -> bool:
        return leased < self._claim.limit and ended < PROMOTED_PER_CLAIM and parked < MAX_PARKED_PER_CLAIM

    def _open_queues(self) -> list[QueueTurn]:
        tx, claim = self._tx, self._claim
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        tx.load_settings(served)
        limited = sorted(name for name in served if tx.settings(name).max_running is not None)
        tx.lock_queues(limited)
        running = tx.tallied(limited, (State.RUNNING,)) if limited else {}
        queues = []
        for index, (name, before) in enumerate(served.items()):
            settings = tx.settings(name)
            room = UNLIMITED_ROOM
            if settings.paused:
                room = 0
            elif settings.max_running is not None:
                # If the limit was set after the first read, the queue is not locked: claim nothing from it now.
                room = settings.max_running - running[name] if name in running else 0
            queues.append(QueueTurn(name, settings, before, index, room))
        return queues

    def _leases_of_this_call(self) -> list[Lease]:
        """The leases that an earlier request with the same name took, if this one repeats it."""
        tx, claim = self._tx, self._claim
        if not claim.repeats or claim.call is None:
            return []
        rows = tx.load(sorted(tx.leases_of_call(claim.worker, claim.call))).values()
        asked = (State.RUNNING, claim.worker, claim.call)
        return [row.as_lease() for row in rows if (row.state, row.worker, row.call) == asked]

    def _read_heads(self, queues: list[QueueTurn]) -> None:
        """Read the first jobs of all queues. A few more than the limit: some may be expired or have to wait."""
        self._tx.write()
        limit = self._claim.limit + PROMOTED_PER_CLAIM + MAX_PARKED_PER_CLAIM
        heads = self._tx.heads([queue.name for queue in queues if queue.room > 0], self._claim, limit, self._seen)
        for queue in queues:
            queue.read(heads.get(queue.name, iter(())))

    def _take(self, queues: list[QueueTurn]) -> bool:
        """Choose in order, then lock only the chosen jobs: other claims skip locked jobs, so a lock on more would hide
        jobs that nobody takes. False if there is nothing left to choose, and all chosen jobs could be locked."""
        before = [(queue, queue.room, queue.served) for queue in queues]
        chosen, is_exhausted = self._choose(queues)
        for queue, room, served in before:
            queue.room, queue.served = room, served
        claim, term = self._claim, span(self._claim.lease_for)
        if all(not candidate.ends and candidate.lacking is None for candidate in chosen):
            begin = None if claim.begins is None else max(0, claim.begins - len(self._leases))
            leases = self._tx.lease_plain([candidate.head for candidate in chosen], claim, begin)
            if leases is not None:
                self._leases += leases
                for candidate in chosen:
                    self._seen.append(candidate.head.seq)
                    candidate.queue.room -= 1
                    candidate.queue.served += 1
                return not is_exhausted
        rows = self._tx.take_heads([candidate.head for candidate in chosen])
        for candidate in chosen:
            self._seen.append(candidate.head.seq)
            row = rows.get(candidate.head.seq)
            if row is None:
                continue
            if candidate.ends:
                self._ended += 1
                if candidate.fails_fast:
                    resource_queue.fail_fast(self._tx, row)
                else:
                    moves.expire(self._tx, row)
            elif candidate.lacking is not None:
                self._parked += 1
                resource_queue.block(self._tx, row, candidate.lacking)
            else:
                ahead = claim.begins is not None and len(self._leases) >= claim.begins
                moves.start_lease(self._tx, row, worker=claim.worker, term=term, call=claim.call, ahead=ahead)
                self._leases.append(row.as_lease())
                candidate.queue.room -= 1
                candidate.queue.served += 1
        return not is_exhausted or len(rows) < len(chosen)

    def _choose(self, queues: list[QueueTurn]) -> tuple[list[Candidate], bool]:
        """The next jobs in order, and whether they are the last ones."""
        order = turns(queues, self._tx.steady)
        chosen: list[Candidate] = []
        leased, ended, parked = len(self._leases), self._ended, self._parked
        while self._may_take(leased, ended, parked):
            if (queue := next(order, None)) is None:
                return chosen, True
            candidate = self._decide(queue, queue.pop())
            chosen.append(candidate)
            if candidate.ends:
                ended += 1
                if candidate.head.needs:
                    break  # its freed resources change the decision on the next jobs
            elif candidate.lacking is not None:
                parked += 1
            else:
                leased += 1
                queue.room -= 1
                queue.served += 1
        return chosen, False

    def _decide(self, queue: QueueTurn, head: Head) -> Candidate:
        """Decide what to do with a job. What it needs is taken, or its wait planned, at once: the decision on the next
        jobs depends on it."""
        tx = self._tx
        is_overdue = moves.is_overdue(tx, head)
        if is_overdue or not head.needs:
            return Candidate(queue, head, is_overdue)
        gauges = tx.gauges
        if gauges.shut(head.needs) is not None and tx.fail_fast_among([head.seq]):
            return Candidate(queue, head, fails_fast=True)
        lacking = gauges.lacking(head)
        if lacking is None:
            gauges.take(head)
        else:
            gauges.park(head, lacking, was_queued=True)
        return Candidate(queue, head, lacking=lacking)

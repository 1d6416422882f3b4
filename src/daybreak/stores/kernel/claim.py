"""Claim: lease the most urgent jobs of the tasks that a worker knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from daybreak.core.model import Batching, Lease, QueueSettings, State
from daybreak.core.rank import Rank, urgency, virtual_time
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.core.units import Priority, bucket, span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Claim
from daybreak.stores.kernel import flights, moves, pass_time, resource_queue
from daybreak.stores.kernel.port import Head, Mate
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.kernel.transaction import Transaction

UNLIMITED_ROOM: Final = 1 << 60
MAX_PASSED_OVER: Final = 1000  # jobs of batch calls that are not full, in one claim
SEARCHED_PER_CALL: Final = 100  # jobs of the batch key that are looked at beside those that fit
BUCKETS: Final = tuple(sorted(Priority).index(bucket(level)) for level in range(11))


class QueueTurn:
    """One queue of a claim: its jobs in rank order, and how many of them it may still give."""

    def __init__(self, name: str, settings: QueueSettings, served: int, index: int, room: int, taken: set[int]) -> None:
        self.name = name
        self.settings = settings
        self.served = served
        self.index = index
        self.room = room
        self.head: Head | None = None
        self._taken = taken  # jobs that a batch call takes along, which stand further back in rank
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
        while self._taken and self.head is not None and self.head.seq in self._taken:
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
    that is overdue ends here, and so does one that fails fast at an open breaker. `mates` are the other jobs of its
    batch call; None if it is claimed alone."""

    queue: QueueTurn
    head: Head
    is_overdue: bool = False
    fails_fast: bool = False
    lacking: str | None = None
    mates: tuple[Mate, ...] | None = None

    @property
    def ends(self) -> bool:
        return self.is_overdue or self.fails_fast

    @property
    def is_plain(self) -> bool:
        """Whether the job is leased, and no other with it."""
        return not self.ends and self.lacking is None and self.mates is None


class Claiming:
    """One claim. `again`: there may be more; `next_in`: when the next job falls due."""

    def __init__(self, tx: Transaction, claim: Claim) -> None:
        self._tx = tx
        self._claim = claim
        self._seen: list[int] = []  # jobs that were chosen already, whether this claim or another one got them
        self._taken: set[int] = set()  # in this round, those that a batch call takes along
        self._spoken_for: set[int] = set()  # jobs that no further batch call takes along
        self._leases: list[Lease] = []
        self._started = 0  # jobs, and batch calls, that were leased
        self._ended = 0
        self._parked = 0
        self._lingering: set[tuple[LaneName, str]] = set()
        self._passed_over = 0
        self._ripe_at: int | None = None
        self.again = False
        self.next_in: timedelta | None = None

    def claim(self) -> list[Lease]:
        """The leases, in the order in which the jobs were chosen."""
        tx, claim = self._tx, self._claim
        due = pass_time.promote(tx, PROMOTED_PER_CLAIM)
        queues = self._open_queues()
        self._leases = self._leases_of_this_call()
        self._started = len({lease.seq if lease.group is None else lease.group for lease in self._leases})
        is_exhausted = False
        while not is_exhausted and self._may_take(self._started, self._ended, self._parked):
            self._read_heads(queues)
            is_exhausted = not self._take(queues)
        self.again = due == PROMOTED_PER_CLAIM if is_exhausted else True
        self.again = resource_queue.offer_freed(tx) or self.again
        if self._started < claim.limit:
            self.next_in = self._next_in()
        return self._leases

    def _next_in(self) -> timedelta | None:
        next_in = pass_time.next_in(self._tx)
        if self._ripe_at is None:
            return next_in
        ripe_in = timedelta(microseconds=self._ripe_at - self._tx.steady)
        return ripe_in if next_in is None else min(next_in, ripe_in)

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
            queues.append(QueueTurn(name, settings, before, index, room, self._taken))
        return queues

    def _leases_of_this_call(self) -> list[Lease]:
        """The leases that an earlier request with the same name took, if this one repeats it."""
        tx, claim = self._tx, self._claim
        if not claim.repeats or claim.call is None:
            return []
        rows = tx.load(sorted(tx.leases_of_call(claim.worker, claim.call))).values()
        asked = (State.RUNNING, claim.worker, claim.call)
        mine = [row for row in rows if (row.state, row.worker, row.call) == asked]
        mine.sort(key=_place_in_call)
        return [row.as_lease() for row in mine]

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
        if all(candidate.is_plain for candidate in chosen):
            begins = self._claim.begins
            begin = None if begins is None else max(0, begins - self._started)
            leases = self._tx.lease_plain([candidate.head for candidate in chosen], self._claim, begin)
            if leases is not None:
                self._leases += leases
                self._started += len(leases)
                for candidate in chosen:
                    self._seen.append(candidate.head.seq)
                    candidate.queue.room -= 1
                    candidate.queue.served += 1
                return not is_exhausted
        rows = self._tx.take_heads([candidate.head for candidate in chosen])
        ending = [rows[c.head.seq] for c in chosen if c.ends and c.head.seq in rows]
        may_end = {row.seq for row in flights.free(self._tx, ending)}
        for candidate in chosen:
            self._seen.append(candidate.head.seq)
            row = rows.get(candidate.head.seq)
            if row is None or (candidate.ends and row.seq not in may_end):
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
                leased = self._lease(row, candidate.mates)
                candidate.queue.room -= leased
                candidate.queue.served += leased
        return not is_exhausted or len(rows) < len(chosen)

    def _lease(self, row: Row, mates: Sequence[Mate] | None) -> int:
        """Lease a job with the mates of its batch call, and return how many they are."""
        claim, term = self._claim, span(self._claim.lease_for)
        ahead = claim.begins is not None and self._started >= claim.begins
        self._started += 1
        group, rows = None, [row]
        if mates is not None:
            group = row.seq
            for mate in self._tx.take_mates(mates).values() if mates else ():
                moves.release_offers(self._tx, mate)
                rows.append(mate)
        for one in rows:
            moves.start_lease(
                self._tx, one, worker=claim.worker, term=term, call=claim.call, ahead=ahead, group=group
            )  # fmt: skip
        if group is not None:
            moves.start_call(self._tx, row, len(rows))
        self._leases += [one.as_lease() for one in rows]
        self._seen += [one.seq for one in rows[1:]]
        return len(rows)

    def _choose(self, queues: list[QueueTurn]) -> tuple[list[Candidate], bool]:
        """The next jobs in order, and whether they are the last ones."""
        order = turns(queues, self._tx.steady)
        chosen: list[Candidate] = []
        leased, ended, parked = self._started, self._ended, self._parked
        self._taken.clear()
        looked_at, passed_over = 0, self._passed_over
        while self._may_take(leased, ended, parked):
            has_calls = self._taken or self._passed_over > passed_over
            if has_calls and looked_at + len(self._taken) >= self._claim.limit + PROMOTED_PER_CLAIM:
                break  # the stores may have read no further
            if (queue := next(order, None)) is None:
                return chosen, True
            head = queue.pop()
            if self._claim.batches:
                looked_at += 1
                self._spoken_for.add(head.seq)
            if (candidate := self._decide(queue, head)) is None:
                self._passed_over += 1
                self._seen.append(head.seq)
                if self._passed_over == MAX_PASSED_OVER:
                    return chosen, True
                continue
            chosen.append(candidate)
            size = 1
            if candidate.mates:
                taken = [mate.seq for mate in candidate.mates]
                self._taken.update(taken)
                self._spoken_for.update(taken)
                size += len(taken)
            if candidate.ends:
                ended += 1
                if candidate.head.needs:
                    break  # its freed resources change the decision on the next jobs
            elif candidate.lacking is not None:
                parked += 1
            else:
                leased += 1
                queue.room -= size
                queue.served += size
        return chosen, False

    def _decide(self, queue: QueueTurn, head: Head) -> Candidate | None:
        """Decide what to do with a job. What it needs is taken, or its wait planned, at once: the decision on the next
        jobs depends on it. None if it is passed over, because its batch call is not full yet."""
        tx, mates = self._tx, None
        is_overdue = moves.is_overdue(tx, head)
        if self._claim.batches and not is_overdue and head.batch is not None:
            batching = self._claim.batches.get(head.name[1:])
            if batching is not None and self._leads_earlier_call(head):
                batching = None
            if batching is not None and (mates := self._find_mates(queue, head, head.batch, batching)) is None:
                return None
        if is_overdue or not head.needs:
            return Candidate(queue, head, is_overdue, False, None, mates)
        gauges = tx.gauges
        if gauges.shut(head.needs) is not None and tx.fail_fast_among([head.seq]):
            return Candidate(queue, head, fails_fast=True)
        lacking = gauges.lacking(head)
        if lacking is None:
            gauges.take(head)
            for mate in mates or ():
                gauges.release_reservation(mate)
        else:
            gauges.park(head, lacking, was_queued=True)
            mates = None
        return Candidate(queue, head, lacking=lacking, mates=mates)

    def _leads_earlier_call(self, head: Head) -> bool:
        """Whether a call that this job began still runs: the job left it, others have not. Its number stands for the
        slots of that call, so the job is leased by itself, and in no new call."""
        return head.fence > 0 and bool(self._tx.leases_of_group(head.seq))

    def _find_mates(self, queue: QueueTurn, head: Head, batch: str, batching: Batching) -> tuple[Mate, ...] | None:
        """The jobs that the batch call of this one takes along; None if the call is not full, and may wait for more.

        They have the same key, the same needs and about the same priority. A job that crashed or ran into its limit
        before runs in a call of its own."""
        if (head.name, batch) in self._lingering:
            return None
        if head.is_suspect or self._claim.job is not None:
            return ()
        tx, size, search = self._tx, min(batching.size, queue.room), batching.size + SEARCHED_PER_CALL
        company = islice(tx.company(head, search, self._spoken_for), search)
        fitting = (mate for mate in company if _fits(mate, head) and not moves.is_overdue(tx, mate))
        mates = tuple(islice(fitting, size - 1))
        if batching.linger is not None and 1 + len(mates) < size:
            job = tx.peek(head.seq)
            ripe_at = tx.steady if job is None else job.arrived + span(batching.linger)
            if ripe_at > tx.steady:
                self._lingering.add((head.name, batch))
                self._ripe_at = ripe_at if self._ripe_at is None else min(self._ripe_at, ripe_at)
                return None
        return mates


def _fits(mate: Mate, head: Head) -> bool:
    """Whether a job may run in the batch call of another with the same key."""
    is_near = abs(BUCKETS[mate.priority] - BUCKETS[head.priority]) <= 1
    return is_near and mate.needs == head.needs and not mate.is_suspect


def _place_in_call(row: Row) -> tuple[int, bool, Rank]:
    """Jobs of one call are neighbours: the head first, the others in rank order. All else is in the order of seq."""
    return (row.seq, False, row.rank) if row.group is None else (row.group, row.seq != row.group, row.rank)

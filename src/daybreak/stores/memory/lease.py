"""Leases: claimed, extended, taken over, settled. Also what happens with time: jobs fall due and expire."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from daybreak.core import events
from daybreak.core.events import Event
from daybreak.core.model import FINAL, Reason, Settlement, State
from daybreak.core.rank import urgency, virtual_time
from daybreak.core.resource_gauge import MAX_PARKED_PER_CLAIM
from daybreak.core.units import moment, span
from daybreak.store.protocol import PROMOTED_PER_CLAIM, Beat, Claim, Extended, Reap
from daybreak.stores.memory.book import Now, due_at
from daybreak.stores.memory.entry import COMPLETED, RUNNING, Entry
from daybreak.stores.memory.resource_queue import ResourceQueue


class Leasing(ResourceQueue):
    """Claim, extend, reap, settle, advance."""

    __slots__ = ()

    def claim(self, claim: Claim, now: Now) -> tuple[list[Entry], bool]:
        """Lease the most urgent jobs that the worker may run. Returns them, and whether more may be available at
        once."""
        due, expired, parked = self.promote(PROMOTED_PER_CLAIM, now), 0, 0
        served = dict(zip(claim.queues, claim.served or (0,) * len(claim.queues), strict=True))
        room = {queue: self._room(queue) for queue in claim.queues}
        taken, term = self._entries_of_this_call(claim), span(claim.lease_for)
        while len(taken) < claim.limit and expired < PROMOTED_PER_CLAIM and parked < MAX_PARKED_PER_CLAIM:
            head = self._next(claim, room, served, now)
            if head is None:
                return taken, due == PROMOTED_PER_CLAIM
            if self._is_overdue(head, now):
                self._expire(head, now)
                expired += 1
                continue
            if head.needs and self.fails_fast(head, now):
                expired += 1
                continue
            if head.needs and (lacking := self.lacking(head, now)) is not None:
                self.park(head, lacking, now)
                parked += 1
                continue
            self._lease(head, now, worker=claim.worker, term=term, call=claim.call)
            head.ahead = claim.begins is not None and len(taken) >= claim.begins
            taken.append(head)
            queue = head.spec.queue
            room[queue] -= 1
            served[queue] += 1
        return taken, True

    def _entries_of_this_call(self, claim: Claim) -> list[Entry]:
        if not claim.repeats or claim.call is None:
            return []
        held = (e for e in self.running.values() if e.worker == claim.worker and e.call == claim.call)
        return sorted(held, key=lambda entry: entry.seq)

    def _next(self, claim: Claim, room: dict[str, float], served: dict[str, int], now: Now) -> Entry | None:
        if claim.job is not None:
            return self._chosen(claim, claim.job, room)
        heads = [
            self.jobs[rank.seq]
            for queue in claim.queues
            if room[queue] >= 1 and (rank := self.ready.head(queue, claim.tasks)) is not None
        ]
        if len(heads) < 2:
            return heads[0] if heads else None

        def turn_of(head: Entry) -> tuple[int, int]:
            queue = head.spec.queue
            settings = self.settings(queue)
            return (
                urgency(settings, head.priority, head.rank.order, now.steady),
                virtual_time(served[queue], settings.weight),
            )

        return min(heads, key=turn_of)  # of equal queues the first in the order of the claim

    def _chosen(self, claim: Claim, job: str, room: dict[str, float]) -> Entry | None:
        """The one job that the claim names, if this claim may have it now."""
        entry = self.ids.get(job)
        if entry is None or entry.state is not State.QUEUED or room.get(entry.spec.queue, 0) < 1:
            return None
        is_known = claim.tasks is None or (entry.spec.task, entry.spec.version) in claim.tasks
        return entry if is_known else None

    def _room(self, queue: str) -> float:
        settings = self.settings(queue)
        if settings.paused:
            return 0
        if settings.max_running is None:
            return float("inf")
        return settings.max_running - sum(1 for e in self.running.values() if e.spec.queue == queue)

    # -- while it runs -------------------------------------------------------------------------------------------------

    def extend(self, beat: Beat, now: Now) -> Extended:
        entry = self.jobs.get(beat.seq)
        if entry is None or entry.state is not State.RUNNING or entry.fence != beat.fence:
            return Extended(held=False)
        entry.term = span(beat.lease_for)
        entry.until = now.steady + entry.term
        if beat.alone is not None:
            entry.alone = beat.alone
        if beat.begun is not None:
            entry.ahead = not beat.begun
        if beat.checkpoint is not None:
            entry.checkpoint = beat.checkpoint
        if beat.progress is not None:
            entry.progress, entry.message = beat.progress, beat.message
            self._publish(
                Event(
                    n=entry.n, kind="progress", job=entry.spec.id, at=moment(now.wall), by=entry.worker or "",
                    progress=beat.progress, note=entry.message,
                ),
                now,
            )  # fmt: skip
        return Extended(held=True, cancel=entry.cancelling is not None, suspend=entry.suspending)

    def reap(self, reap: Reap, now: Now) -> list[Entry]:
        """Take over expired leases. Here `reap.asked_at` is a steady time of the store."""
        watched = span(reap.watched_for)
        asked_at = now.steady if reap.asked_at is None else reap.asked_at
        lapsed = [
            entry
            for entry in self.running.values()
            if entry.until is not None and entry.until <= asked_at and entry.term <= watched
        ]
        lapsed.sort(key=lambda entry: (entry.until, entry.seq))
        for entry in lapsed[: reap.limit]:
            entry.fence += 1
            entry.worker, entry.call, entry.reaped = reap.worker, None, True
            entry.term = span(reap.lease_for)
            entry.until = now.steady + entry.term
            self._record(entry, "lease_expired", now, reap.worker, fence=entry.fence)
        return lapsed[: reap.limit]

    # -- settle --------------------------------------------------------------------------------------------------------

    def settle(self, settlement: Settlement, now: Now) -> bool:
        entry = self.jobs.get(settlement.seq)
        if entry is None or entry.fence != settlement.fence:
            return False
        if entry.state is not RUNNING:
            return True  # a repetition: this fence was settled before, and only the reply was lost
        if settlement.unused:
            self._give_starts(entry)
        if entry.cancelling is not None:
            # A cancel request is binding: the job neither completes nor runs again.
            entry.attempt = settlement.attempt
            self._finish(entry, State.CANCELLED, now, by=entry.cancelling)
            return True
        if entry.suspending and settlement.state in (State.QUEUED, State.SCHEDULED):
            settlement = msgspec.structs.replace(settlement, state=State.SUSPENDED, delay=None)
        self._write(entry, settlement, now)
        self.settlement_inserts += settlement.inserts
        self.settlement_puts += settlement.puts
        return True

    def write_settlement_extras(self, now: Now) -> None:
        """Write the inserts and puts of the accepted settlements, after all settlements are written."""
        for spec in self.settlement_inserts:  # a full queue does not refuse them: the settlement is accepted
            self.insert(spec, now, bounded=False)
        for put in self.settlement_puts:
            self.put(put, now)
        self.settlement_inserts, self.settlement_puts = [], []

    def _write(self, entry: Entry, settlement: Settlement, now: Now) -> None:
        self._count_settled(entry, settlement, now)
        self._exit(entry)
        entry.attempt, entry.lost, entry.timeouts = settlement.attempt, settlement.lost, settlement.timeouts
        if settlement.checkpoint is not None:
            entry.checkpoint = settlement.checkpoint
        if settlement.failure is not None:
            entry.failure = settlement.failure
        entry.note = settlement.note
        if settlement.delay is not None:
            entry.due = ("steady", now.steady + span(settlement.delay))
        entry.state, entry.reason = settlement.state, settlement.reason
        if settlement.state is COMPLETED:
            entry.result, entry.failure, entry.checkpoint = settlement.result, None, None
        self._leave_lease(entry)
        if settlement.state in FINAL:
            self._close(entry, now, settlement.keep_for)
        else:
            self._update_rank(entry)
            self._enter(entry)
        self._record_event(entry, events.settled(settlement, entry.n + 1, moment(now.wall), due_at(entry)), now)

    def _give_starts(self, entry: Entry) -> None:
        for need in entry.needs:
            self.gauge(need.resource).give_start(entry.started)

    def _count_settled(self, entry: Entry, settlement: Settlement, now: Now) -> None:
        if not settlement.counts_as:
            return
        counts = self._counts(entry)
        counts.add(settlement.counts_as, 1, settlement.ran)
        counts.add("last", now.wall, settlement.ran)
        if settlement.waited is not None:
            counts.add("waited", 1, settlement.waited)
        if settlement.attempt > 1:
            counts.add("attempts", settlement.attempt)
        if counts not in self.settled:
            self.settled.add(counts)
            counts.add("batches")

    # -- time ----------------------------------------------------------------------------------------------------------

    def promote(self, limit: int, now: Now) -> int:
        """Queue the jobs that are due, up to a limit, so that a million at once do not become one giant transaction."""
        self.offer_due_resources(now)
        due = self.due["steady"].until(now.steady, limit)
        due += self.due["wall"].until(now.wall, limit - len(due))
        for entry in map(self.jobs.__getitem__, due):
            self._exit(entry)
            entry.state, entry.due = State.QUEUED, None
            self._enter(entry)
            self._record(entry, "due", now, "", state=State.QUEUED)
        return len(due)

    def expire(self, limit: int, now: Now) -> int:
        overdue = self.expiring.until(now.steady, limit)
        for entry in map(self.jobs.__getitem__, overdue):
            self._expire(entry, now)
        return len(overdue)

    def next_in(self, now: Now) -> timedelta | None:
        firsts = ((self.due["steady"].first(), now.steady), (self.due["wall"].first(), now.wall))
        delays = [first - time for first, time in firsts if first is not None]
        delays += [gauge.look - now.steady for gauge in self.gauges.values() if gauge.look is not None]
        return timedelta(microseconds=max(0, min(delays))) if delays else None

    def _expire(self, entry: Entry, now: Now) -> None:
        self._finish(entry, State.FAILED, now, by="", reason=Reason.EXPIRED, kind="expired")

"""The jobs that wait for a resource, and which of them may try when it is free."""

from __future__ import annotations

from daybreak.core.events import Event
from daybreak.core.model import Reason, State
from daybreak.core.rank import Rank
from daybreak.core.resource_gauge import (
    MAX_OFFERED,
    RETRY_CAUSE_PREFIX,
    Gauge,
    Reservation,
    is_passed_over,
    need_of,
    spared_resource,
)
from daybreak.core.units import moment, span
from daybreak.store.protocol import Usage, job_topic
from daybreak.stores.memory.accept import Accepting
from daybreak.stores.memory.book import Now
from daybreak.stores.memory.entry import RUNNING, Entry
from daybreak.stores.memory.ready import Ready


class ResourceQueue(Accepting):
    """Taking, giving back and offering resources."""

    __slots__ = ()

    def lacking(self, entry: Entry, now: Now) -> str | None:
        """The first resource that a job must wait for; None if all are free."""
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            if gauge.lacks(need.slots, now.steady, seq=entry.seq, priority=entry.priority):
                return need.resource
        if entry.attempt:
            for need in entry.needs:
                if not self.gauge(need.resource).retries(now.steady):
                    return RETRY_CAUSE_PREFIX + need.resource
        return None

    def fails_fast(self, entry: Entry, now: Now) -> bool:
        """Fail a job that asked not to wait for an open breaker. Returns whether it did."""
        if not entry.spec.options.fail_fast:
            return False
        for need in entry.needs:
            if self.gauge(need.resource).is_shut(now.steady):
                note = f"the breaker of resource {need.resource} is open"
                self._finish(entry, State.FAILED, now, by="", reason=Reason.ERROR, note=note)
                return True
        return False

    def _lease(self, entry: Entry, now: Now, *, worker: str, term: int, call: str | None = None) -> None:
        self._release_reservation(entry)
        self._exit(entry)
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            if gauge.take(need.slots, now.steady, wall=now.wall, is_retry=entry.attempt > 0):
                self.freed.add(RETRY_CAUSE_PREFIX + need.resource)
        entry.blocked_on = entry.blocked_since = None
        entry.state, entry.due, entry.note = RUNNING, None, ""
        self._enter(entry)
        self._forget_expiry(entry)
        entry.attempt += 1
        entry.fence += 1
        if entry.spec.holder is not None:
            self._raise_fence(entry)
        entry.worker, entry.call = worker, call
        entry.term, entry.until = term, now.steady + term
        entry.started = now.wall
        entry.progress, entry.message = None, ""
        self._record_event(
            entry,
            Event(
                n=entry.n + 1, kind="started", job=entry.spec.id, at=moment(now.wall), by=worker,
                state=RUNNING, attempt=entry.attempt, fence=entry.fence,
            ),
            now,
        )  # fmt: skip

    def _raise_fence(self, entry: Entry) -> None:
        """Give a lock's holder a higher fence than every holder before, because the protected system compares
        fences."""
        gauges = [self.gauge(need.resource) for need in entry.needs]
        entry.fence = max(entry.fence, *(gauge.fence + 1 for gauge in gauges))
        for gauge in gauges:
            gauge.fence = entry.fence

    def usage(self, resource: str) -> Usage:
        gauge = self.gauge(resource)
        return Usage(
            name=resource,
            used=gauge.used,
            waiting=len(self.blocked.get(resource, ())),
            shut_until=moment(gauge.shut_until) if gauge.shut_until else None,
        )

    # -- waiting -------------------------------------------------------------------------------------------------------

    def park(self, entry: Entry, resource: str, now: Now) -> None:
        """Block a job until this resource is free. Whatever else it was offered goes to other jobs."""
        self._release_offers(entry)
        self.freed.discard(resource)
        self._exit(entry)
        entry.state, entry.blocked_on = State.BLOCKED, resource
        if entry.blocked_since is None:
            entry.blocked_since = now.steady
        self._enter(entry)
        self._record(entry, "blocked", now, "", state=State.BLOCKED, note=resource)
        if (spared := spared_resource(resource)) is not None:
            self._count(entry, "spared")
            self.gauge(resource).look = self.gauge(spared).look_at_retries(now.steady, offered=0, more=False)
            return
        self._reserve_for(entry, now)
        self.gauge(resource).plan(now.steady, offered=0, more=False)

    def _may_reserve_for(self, entry: Entry, now: Now) -> bool:
        return is_passed_over(entry.needs, entry.blocked_since, now.steady) and all(
            self.gauge(need.resource).may_keep(need.slots, now.steady, seq=entry.seq, priority=entry.priority)
            for need in entry.needs
        )

    def _reserve_for(self, entry: Entry, now: Now) -> None:
        """Reserve free slots for a job that was passed over for too long by jobs that need fewer. Slots of all its
        resources are reserved, or none, and only for the first such job in rank. So no job waits forever, and no two
        jobs wait for each other."""
        if not self._may_reserve_for(entry, now):
            return
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            if gauge.limit is not None:
                if gauge.kept is not None:
                    self._release_reservation(self.jobs[gauge.kept.seq])
                gauge.kept = Reservation(entry.seq, entry.priority, need.slots)

    # -- offering ------------------------------------------------------------------------------------------------------

    def offer_freed(self, now: Now) -> bool:
        """Offer what this transaction freed to the jobs that wait for it. Returns whether any job may try now."""
        any_tried = False
        while self.freed:
            resource = min(self.freed)
            self.freed.discard(resource)
            is_for_retries = spared_resource(resource) is not None
            offer = self._offer_retries if is_for_retries else self._offer
            any_tried = offer(resource, now) or any_tried
        return any_tried

    def offer_due_resources(self, now: Now) -> None:
        looks = ((gauge.look, name) for name, gauge in self.gauges.items() if gauge.look is not None)
        due = [name for _, name in sorted((look, name) for look, name in looks if look <= now.steady)][:MAX_OFFERED]
        kept = {kept.seq for name in due if (kept := self.gauge(name).kept) is not None}
        for seq in sorted(kept):
            self._let_claim_decide(self.jobs[seq], now)
        self.freed.update(due)
        self.offer_freed(now)

    def _let_claim_decide(self, entry: Entry, now: Now) -> None:
        """Slots must not stay reserved for a job that no claim takes, for example because its queue is paused. So the
        job is queued: a claim that finds it reserves the slots again. If no claim has by the next check, they go to
        other jobs."""
        if entry.state is State.QUEUED:
            self._release_reservation(entry)
        elif entry.spec.holder is None:
            self._unblock(entry, now)

    def _offer(self, resource: str, now: Now) -> bool:
        """Let the best-ranked jobs of every lane try, as many as there is room for. One lane is not enough: a paused
        queue, or a task without a worker, would block what others could use."""
        gauge, waiting = self.gauge(resource), self.blocked.get(resource)
        offered, more = 0, False
        if waiting and now.steady >= gauge.shut_until:
            for ranks in waiting.lanes().values():
                tried, rest = self._offer_lane(resource, gauge, ranks, now)
                offered, more = max(offered, tried), more or rest
        elif waiting:
            self._fail_fast_waiters(waiting, now)
        if waiting:
            gauge.plan(now.steady, offered=offered, more=more)
        else:
            gauge.look = None
            self.blocked.pop(resource, None)
        return offered > 0

    def _offer_lane(self, resource: str, gauge: Gauge, ranks: list[Rank], now: Now) -> tuple[int, bool]:
        """How many jobs may try now, and whether there are more that were not checked."""
        starts, tried, beside = gauge.starts(now.steady), 0, 0
        for rank in ranks[:MAX_OFFERED]:
            if tried >= starts or gauge.is_full(beside):
                return tried, False
            entry = self.jobs[rank.seq]
            if self._is_overdue(entry, now):
                self._finish(entry, State.FAILED, now, by="", reason=Reason.EXPIRED, kind="expired")
            elif entry.spec.holder is not None:
                self._grant(entry, now)
                starts = min(starts, tried + gauge.starts(now.steady))
            elif gauge.lacks(
                beside + need_of(entry.spec, resource), now.steady, seq=entry.seq, priority=entry.priority
            ):
                if not tried and self._may_reserve_for(entry, now):
                    # A claim that finds it reserves the slots: only then is it known that some worker would run it.
                    self._unblock(entry, now)
                    return 1, False
            else:
                beside += need_of(entry.spec, resource)
                tried += 1
                self._unblock(entry, now)
        return tried, len(ranks) > MAX_OFFERED

    def _fail_fast_waiters(self, waiting: Ready, now: Now) -> None:
        for ranks in waiting.lanes().values():
            for rank in ranks[:MAX_OFFERED]:
                self.fails_fast(self.jobs[rank.seq], now)

    def _offer_retries(self, cause: str, now: Now) -> bool:
        """Like `_offer`, for retries that wait because their resource is failing."""
        spared = spared_resource(cause)
        assert spared is not None
        gauge, waiting = self.gauge(spared), self.blocked.get(cause)
        offered, more = 0, False
        for ranks in waiting.lanes().values() if waiting else ():
            may_start = gauge.retries(now.steady)
            for rank in ranks[:may_start]:
                self._unblock(self.jobs[rank.seq], now)
            offered, more = max(offered, min(may_start, len(ranks))), more or len(ranks) > may_start
        if waiting:
            self.gauge(cause).look = gauge.look_at_retries(now.steady, offered=offered, more=more)
        else:
            self.gauge(cause).look = None
            self.blocked.pop(cause, None)
        return offered > 0

    def _unblock(self, entry: Entry, now: Now) -> None:
        self._exit(entry)
        entry.state = State.QUEUED
        self._enter(entry)
        self._record(entry, "unblocked", now, "", state=State.QUEUED)

    def _grant(self, entry: Entry, now: Now) -> None:
        """Lease a job to its holder, if all its resources are free."""
        assert entry.spec.holder is not None
        lacking = self.lacking(entry, now)
        if lacking is None:
            self._lease(entry, now, worker=entry.spec.holder, term=span(entry.spec.hold_for))
            self.topics.add(job_topic(entry.spec.id))
        elif lacking != entry.blocked_on:
            self.park(entry, lacking, now)
        else:
            self._reserve_for(entry, now)

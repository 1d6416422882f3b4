"""Bugs in totals, in limited retries, and in full queues."""

from __future__ import annotations

from msgspec.structs import replace

from daybreak.core.model import State
from daybreak.core.resource_gauge import spared_resource
from daybreak.stores.memory.counts import Counts
from daybreak.stores.memory.ledger import Ledger
from daybreak.stores.memory.ready import Ready

# -- totals ------------------------------------------------------------------------------------------------------------


class RefusedSettlementCounts(Ledger):
    def settle(self, settlement, now):
        settled = super().settle(settlement, now)
        if not settled and (entry := self.jobs.get(settlement.seq)):
            self._count_settled(entry, settlement, now)
        return settled


class RepeatedSettlementCounts(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        is_repeated = entry is not None and entry.state is not State.RUNNING and entry.fence == settlement.fence
        if is_repeated:
            self._count_settled(entry, settlement, now)
        return super().settle(settlement, now)


class DuplicatesAreSubmitted(Ledger):
    def insert(self, spec, now, **how):
        if known := self.ids.get(spec.id):
            self._count(known, "submitted")
        return super().insert(spec, now, **how)


class TotalsGoWithTheirJobs(Ledger):
    def drop(self, entry, now, **how):
        super().drop(entry, now, **how)
        self._count(entry, "completed", -1)


class EveryJobIsABatch(Ledger):
    def _count_settled(self, entry, settlement, now):
        self.settled.clear()
        super()._count_settled(entry, settlement, now)


class LatestIsASum(Ledger):
    def _counts(self, entry):
        return self.totals.setdefault((entry.lane, entry.priority), Sums())


class Sums(Counts):
    def add(self, what, n=1, took=0):
        there = self.of.get(what, (0, 0))
        self.of[what] = (there[0] + n, there[1] + took)


class ExpiredIsNotCounted(Ledger):
    def _count(self, entry, what, n=1, took=0):
        if what != "failed expired":
            super()._count(entry, what, n, took)


# -- retries of a resource that fails ----------------------------------------------------------------------------------


class RetriesAreFree(Ledger):
    def lacking(self, entry, now):
        lacking = super().lacking(entry, now)
        return None if lacking is not None and spared_resource(lacking) is not None else lacking


class FirstTriesWaitToo(Ledger):
    def lacking(self, entry, now):
        attempt, entry.attempt = entry.attempt, 1
        lacking = super().lacking(entry, now)
        entry.attempt = attempt
        return lacking


class RetriesNeverComeBack(Ledger):
    def _offer_retries(self, cause, now):
        return False


class NothingIsOwed(Ledger):
    def _lease(self, entry, now, **how):
        super()._lease(entry, now, **how)
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            gauge.credit = max(gauge.credit, 0)


class TurnOfARetryIsLost(Ledger):
    def _release_offers(self, entry):
        super()._release_offers(entry)
        self.freed = {name for name in self.freed if spared_resource(name) is None}


class PatienceIsForced(Ledger):
    def fails_fast(self, entry, now):
        return False


class HasteIsForced(Ledger):
    def fails_fast(self, entry, now):
        gauges = [self.gauge(need.resource) for need in entry.needs]
        return any(gauge.gate.probes is not None for gauge in gauges) and super().fails_fast(entry, now)

    def _fail_fast_waiters(self, waiting, now):
        for ranks in waiting.lanes().values():
            for rank in ranks:
                self._finish(self.jobs[rank.seq], State.FAILED, now, by="")


# -- full queues -------------------------------------------------------------------------------------------------------


class ShedsAnyone(Ledger):
    def _find_victim(self, spec, crowded):
        rank = self.ready.tail(spec.queue)
        return None if rank is None else self.jobs[rank.seq]


class ShedsTheFirst(Ledger):
    def _find_victim(self, spec, crowded):
        rank = self.ready.head(spec.queue, None)
        entry = None if rank is None else self.jobs[rank.seq]
        return entry if entry is not None and entry.priority > spec.priority else None


class ShedsQueuedJobsOnly(Ledger):
    def _find_victim(self, spec, crowded):
        rank = self.ready.tail(spec.queue)
        entry = None if rank is None else self.jobs[rank.seq]
        return entry if entry is not None and entry.priority > spec.priority else None


class ShedsWaitersOnlyIfNoneIsQueued(Ledger):
    def _find_victim(self, spec, crowded):
        parked = self.parked
        if self.ready.tail(spec.queue) is not None:
            self.parked = Ready()
        try:
            return super()._find_victim(spec, crowded)
        finally:
            self.parked = parked


class ShedsTheHolder(Ledger):
    def _find_victim(self, spec, crowded):
        running = [entry for entry in self.running.values() if entry.spec.queue == spec.queue]
        return super()._find_victim(spec, crowded) or (running[0] if running else None)


class ShedWaiterIsStillCounted(Ledger):
    def _exit(self, entry):
        if entry.state is not State.BLOCKED:
            super()._exit(entry)
            return
        self.parked.discard(entry.lane, entry.rank)


class ShedsAnyWaiterAtAResource(Ledger):
    def _find_victim(self, spec, crowded):
        return super()._find_victim(spec, [])


class ShedsAtOneOfTwoResources(Ledger):
    def _find_victim(self, spec, crowded):
        return super()._find_victim(spec, crowded[:1])


class ShedsInSilence(Ledger):
    def _finish(self, entry, state, now, **how):
        super()._finish(entry, state, now, **how)
        if how.get("kind") == "shed":
            self.topics.clear()


class ShrinksForEveryone(Ledger):
    def _accept(self, spec, settings, now):
        entry = super()._accept(replace(spec, priority=10), settings, now)
        entry.spec, entry.priority = spec, spec.priority
        return entry

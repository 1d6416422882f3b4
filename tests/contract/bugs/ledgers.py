"""Bugs in the state machine of jobs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from msgspec.structs import replace

from daybreak.core.model import FINAL, State
from daybreak.core.rank import Rank
from daybreak.store.protocol import Extended, Verdict
from daybreak.stores.memory.ledger import Key, Ledger, Now

# -- 1 accepted jobs ---------------------------------------------------------------------------------------------------


class ResumedJobIsForgotten(Ledger):
    def _amend_resume(self, entry, amend, now):
        verdict = super()._amend_resume(entry, amend, now)
        self._exit(entry)
        return verdict


class StartedJobIsStillScheduled(Ledger):
    def _amend_start(self, entry, amend, now):
        due = entry.due
        verdict = super()._amend_start(entry, amend, now)
        if due is not None and verdict == "done":
            self.due[due[0]].add(due[1], entry.seq)
        return verdict


class SameIdIsANewJob(Ledger):
    def insert(self, spec, now, **how):
        self.ids.pop(spec.id, None)
        return super().insert(spec, now, **how)


class RefusedJobKeepsItsKey(Ledger):
    def insert(self, spec, now, **how):
        answer = super().insert(spec, now, **how)
        if answer.verdict is Verdict.FULL and spec.key:
            self.keys[spec.key] = Key(spec.digest, spec.id, now.steady)
        return answer


# -- 2 fences ----------------------------------------------------------------------------------------------------------


class NoFenceInSettle(Ledger):
    def settle(self, settlement, now):
        if entry := self.jobs.get(settlement.seq):
            settlement = replace(settlement, fence=entry.fence)
        return super().settle(settlement, now)


class NoFenceInExtend(Ledger):
    def extend(self, beat, now):
        if entry := self.jobs.get(beat.seq):
            beat = replace(beat, fence=entry.fence)
        return super().extend(beat, now)


class ReaperKeepsTheFence(Ledger):
    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.fence -= 1
        return taken


class RepeatedSettlementIsRefused(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        return bool(entry and entry.state is State.RUNNING) and super().settle(settlement, now)


class RefusedSettlementInserts(Ledger):
    def settle(self, settlement, now):
        settled = super().settle(settlement, now)
        if not settled:
            self.settlement_inserts += settlement.inserts
        return settled


class CancelledSettlementInserts(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        if entry is not None and entry.cancelling is not None:
            self.settlement_inserts += settlement.inserts
            self.settlement_puts += settlement.puts
        return super().settle(settlement, now)


class RetryStartsFencesAnew(Ledger):
    def _amend_retry(self, entry, amend, now):
        verdict = super()._amend_retry(entry, amend, now)
        entry.fence = 0
        return verdict


# -- 3 order -----------------------------------------------------------------------------------------------------------


class Misplaced(Ledger):
    """Jobs stand where `rank_of` says."""

    def rank_of(self, entry) -> Rank:
        raise NotImplementedError

    def _enter(self, entry):
        if entry.state is State.QUEUED:
            entry.rank = self.rank_of(entry)
        super()._enter(entry)


class LastInFirstOut(Misplaced):
    def rank_of(self, entry):
        return entry.rank._replace(order=-entry.seq)


class PriorityIgnored(Misplaced):
    def rank_of(self, entry):
        return entry.rank._replace(band=0)


class OrderByClock(Misplaced):
    def rank_of(self, entry):
        return entry.rank._replace(order=entry.created)


class ReleasedJobGoesToTheBack(Misplaced):
    def rank_of(self, entry):
        return entry.rank._replace(order=entry.n)


class AgingForgotten(Misplaced):
    def rank_of(self, entry):
        return Rank(entry.priority, 0, entry.seq)


class QueuesInOrderOfNaming(Ledger):
    def _next(self, claim, room, served, now):
        for queue in claim.queues:
            if found := super()._next(replace(claim, queues=(queue,)), room, served, now):
                return found
        return None


class WeightsIgnored(Ledger):
    def settings(self, queue):
        return replace(super().settings(queue), weight=1)


class ServedIgnored(Ledger):
    def claim(self, claim, now):
        return super().claim(replace(claim, served=()), now)


class ChosenJobIgnoresLimits(Ledger):
    def _chosen(self, claim, job, room):
        return super()._chosen(claim, job, dict.fromkeys(room, 9))


class ChosenJobIgnoresItsState(Ledger):
    def _chosen(self, claim, job, room):
        entry = self.ids.get(job)
        if entry is not None and entry.state is State.SUSPENDED:
            return entry
        return super()._chosen(claim, job, room)


class ChoiceIsForgotten(Ledger):
    def claim(self, claim, now):
        return super().claim(replace(claim, job=None), now)


# -- 4 limits ----------------------------------------------------------------------------------------------------------


class MaxRunningOffByOne(Ledger):
    def _room(self, queue):
        room = super()._room(queue)
        return room + 1 if room != 0 else room


class MaxRunningLeaks(Ledger):
    """A job that suspended itself is counted for ever."""

    def _room(self, queue):
        held = sum(1 for e in self.jobs.values() if e.state is State.SUSPENDED and e.fence and e.spec.queue == queue)
        return super()._room(queue) - held


class LapsedLeaseMakesRoom(Ledger):
    def claim(self, claim, now):
        running, self.running = self.running, {
            seq: entry for seq, entry in self.running.items() if entry.until > now.steady
        }  # fmt: skip
        answer = super().claim(claim, now)
        self.running = running | self.running
        return answer


class CapacityLeaks(Ledger):
    def _amend_cancel(self, entry, amend, now):
        verdict = super()._amend_cancel(entry, amend, now)
        if verdict == "done":
            self.unfinished[entry.spec.queue] += 1
        return verdict


class CapacityCountsQueuedOnly(Ledger):
    def insert(self, spec, now, **how):
        kept = self.unfinished
        self.unfinished = Counter(e.spec.queue for e in self.jobs.values() if e.state is State.QUEUED)
        answer = super().insert(spec, now, **how)
        self.unfinished = kept
        return answer


# -- 5 attempts --------------------------------------------------------------------------------------------------------


class HandBackIsCharged(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        return super().settle(replace(settlement, attempt=entry.attempt) if entry else settlement, now)


class ReaperCharges(Ledger):
    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.attempt += entry.fence > 2
        return taken


class AttemptCountedAtTheEnd(Ledger):
    def _lease(self, entry, now, **how):
        super()._lease(entry, now, **how)
        entry.attempt -= 1


class LapsedLeaseCannotSettle(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        lapsed = entry and entry.until is not None and entry.until <= now.steady
        return not lapsed and super().settle(settlement, now)


class LapsedLeaseCannotExtend(Ledger):
    def extend(self, beat, now):
        entry = self.jobs.get(beat.seq)
        if entry and entry.until is not None and entry.until <= now.steady:
            return Extended(held=False)
        return super().extend(beat, now)


# -- deaths ------------------------------------------------------------------------------------------------------------


class AloneIsNotKept(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, alone=None), now)


class AnyHeartbeatTakesAloneBack(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, alone=bool(beat.alone)), now)


class AloneForGood(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, alone=beat.alone or None), now)


class RevivedLeaseIsNotAlone(Ledger):
    def extend(self, beat, now):
        if (entry := self.jobs.get(beat.seq)) and entry.until is not None and entry.until <= now.steady:
            entry.alone = False
        return super().extend(beat, now)


class TakeOverForgetsAlone(Ledger):
    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.alone = False
        return taken


class SecondTakeOverForgetsAlone(Ledger):
    def reap(self, reap, now):
        before = {entry.seq for entry in self.running.values() if entry.reaped}
        taken = super().reap(reap, now)
        for entry in taken:
            entry.alone = entry.alone and entry.seq not in before
        return taken


class NextClaimIsAloneToo(Ledger):
    def _leave_lease(self, entry):
        alone = entry.alone
        super()._leave_lease(entry)
        entry.alone = alone


class RetriedJobIsAloneToo(Ledger):
    def _amend_retry(self, entry, amend, now):
        entry.alone = entry.lost > 0
        return super()._amend_retry(entry, amend, now)


class ChargedWithoutBeginning(Ledger):
    """Whatever was claimed counts as begun."""

    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            entry.ahead = False
        return taken


class AheadFromTheFirst(Ledger):
    def claim(self, claim, now):
        taken, again = super().claim(claim, now)
        for entry in taken:
            entry.ahead = entry.ahead or claim.begins is not None
        return taken, again


class BeginningIsNotKept(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, begun=None), now)


class AnyHeartbeatBegins(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, begun=beat.begun is not False), now)


class BegunForGood(Ledger):
    def extend(self, beat, now):
        return super().extend(replace(beat, begun=beat.begun or None), now)


class NextClaimIsAheadToo(Ledger):
    def claim(self, claim, now):
        before = {entry.seq for entry in self.jobs.values() if getattr(entry, "fence", 0) and entry.note == ""}
        taken, again = super().claim(claim, now)
        for entry in taken:
            entry.ahead = entry.ahead or entry.seq in before
        return taken, again


# -- 6 cancelling ------------------------------------------------------------------------------------------------------


class CancelledJobStaysReady(Ledger):
    def _amend_cancel(self, entry, amend, now):
        was_queued = entry.state is State.QUEUED
        verdict = super()._amend_cancel(entry, amend, now)
        if was_queued:
            self.ready.add(entry.lane, entry.rank)
        return verdict


class CancelRequestForgotten(Ledger):
    def settle(self, settlement, now):
        if entry := self.jobs.get(settlement.seq):
            entry.cancelling = None
        return super().settle(settlement, now)


class RunningJobIsCancelledAtOnce(Ledger):
    def _amend_cancel(self, entry, amend, now):
        if entry.state in FINAL:
            return "refused"
        self._finish(entry, State.CANCELLED, now, by=amend.by)
        return "done"


class FinalJobsCanBeCancelled(Ledger):
    def _amend_cancel(self, entry, amend, now):
        if entry.state is State.COMPLETED:
            entry.state = State.CANCELLED
            return "done"
        return super()._amend_cancel(entry, amend, now)


# -- 7 keys ------------------------------------------------------------------------------------------------------------


class KeyIgnored(Ledger):
    def insert(self, spec, now, **how):
        return super().insert(replace(spec, key=None), now, **how)


class ContentIgnored(Ledger):
    def insert(self, spec, now, **how):
        return super().insert(replace(spec, digest=""), now, **how)


class RemovedJobKeepsItsKey(Ledger):
    def _amend_remove(self, entry, amend, now):
        if entry.state in FINAL:
            self._record(entry, "removed", now, amend.by, note=amend.note)
            self.drop(entry, now, keys_for=timedelta(days=1))
            return "done"
        return super()._amend_remove(entry, amend, now)


class RemovedJobFreesOneKey(Ledger):
    def _amend_remove(self, entry, amend, now):
        others = {name: self.keys[name] for name in entry.keys[1:]}
        verdict = super()._amend_remove(entry, amend, now)
        self.keys.update(others if verdict == "done" else {})
        return verdict


class PurgedKeyIsForgotten(Ledger):
    def drop(self, entry, now, **how):
        super().drop(entry, now, **how)
        self.keys.pop(entry.spec.key, None)


class PurgedKeyAnswersAGhost(Ledger):
    def _find_by_key(self, key, digest):
        answer = super()._find_by_key(key, digest)
        return replace(answer, verdict=Verdict.DUPLICATE) if answer.verdict is Verdict.SPENT else answer


class PurgedKeyTakesOtherContent(Ledger):
    def _find_by_key(self, key, digest):
        return super()._find_by_key(key, key.digest if key.until is not None else digest)


class SpentKeyWaitsForTheJanitor(Ledger):
    def known_key(self, name, now):
        return self.keys.get(name)


class KeyIsSpentFromThePurgeOn(Ledger):
    def drop(self, entry, now, **how):
        super().drop(entry, now, **{**how, "lives_on": True})


class MovedKeyIsSpentFromItsSubmitOn(Ledger):
    def drop(self, entry, now, **how):
        super().drop(entry, now, **{**how, "lives_on": False})


class AttachedKeyIsAsOldAsItsJob(Ledger):
    def _assign_key(self, key, digest, entry, at):
        super()._assign_key(key, digest, entry, entry.arrived)


class NewJobKeepsTheTimeOfASpentKey(Ledger):
    def _assign_key(self, key, digest, entry, at):
        before = self.keys.get(key)
        super()._assign_key(key, digest, entry, at)
        if before is not None:
            self.keys[key].until = before.until


class CodeIsNotAnswered(Ledger):
    def insert(self, spec, now, **how):
        return replace(super().insert(spec, now, **how), code="")


class RunningJobKeepsItsName(Ledger):
    def _holder_of(self, spec):
        return None if spec.unique is None else self.uniques.get(spec.unique)


class EveryRunningJobGivesUpItsName(Ledger):
    def _holder_of(self, spec):
        return super()._holder_of(replace(spec, unique_while="waiting"))


class WaitingJobGivesUpItsName(Ledger):
    def _holder_of(self, spec):
        return None if spec.unique_while == "waiting" else super()._holder_of(spec)


class EndedJobFreesTheNameOfAnother(Ledger):
    def _close(self, entry, now, keep_for):
        super()._close(entry, now, keep_for)
        self.uniques.pop(entry.spec.unique, None)


class AdoptedJobTakesANameItGaveUp(Ledger):
    def adopt(self, moved, by, now):
        return super().adopt(replace(moved, holds_name=True), by, now)


class UniqueNameIsKeptForEver(Ledger):
    def _close(self, entry, now, keep_for):
        super()._close(entry, now, keep_for)
        if entry.spec.unique:
            self.uniques[entry.spec.unique] = entry


# -- 8 clocks ----------------------------------------------------------------------------------------------------------


class ReaperIgnoresOutages(Ledger):
    def reap(self, reap, now):
        return super().reap(replace(reap, watched_for=timedelta(days=999)), now)


class ReapIsJudgedWhenItArrives(Ledger):
    def reap(self, reap, now):
        return super().reap(replace(reap, asked_at=None), now)


class NobodyIsReaped(Ledger):
    def reap(self, reap, now):
        return []


class ClockJumpExpires(Ledger):
    def expire(self, limit, now):
        return super().expire(limit, Now(now.wall, now.wall))


class DelaysStandStill(Ledger):
    def promote(self, limit, now):
        return super().promote(limit, Now(now.wall, min(now.wall, now.steady)))


# -- 9 events ----------------------------------------------------------------------------------------------------------


class EventNumbersHaveGaps(Ledger):
    def _amend_suspend(self, entry, amend, now):
        entry.n += 1
        return super()._amend_suspend(entry, amend, now)


class EndIsNotInTheFeed(Ledger):
    def _publish(self, event, now):
        if event.state not in FINAL:
            super()._publish(event, now)


class EndIsToldTwice(Ledger):
    def _amend_cancel(self, entry, amend, now):
        verdict = super()._amend_cancel(entry, amend, now)
        if verdict == "requested":
            self._record(entry, "cancelled", now, amend.by, state=State.CANCELLED)
        return verdict


class NobodyTookItsPlace(Ledger):
    def _finish(self, entry, state, now, **how):
        super()._finish(entry, state, now, **{**how, "replaced_by": None})


class ReprioritisedInSilence(Ledger):
    def _rerank(self, entry, priority, now, *, by):
        n, told = entry.n, len(entry.history)
        super()._rerank(entry, priority, now, by=by)
        entry.n = n
        del entry.history[told:]


class NobodyDidIt(Ledger):
    def _record(self, entry, kind, now, by, **changed):
        super()._record(entry, kind, now, "" if kind == "resumed" else by, **changed)


# -- 11 tasks ----------------------------------------------------------------------------------------------------------


class AnyTaskIsClaimed(Ledger):
    def claim(self, claim, now):
        return super().claim(replace(claim, tasks=None), now)


class VersionIgnored(Ledger):
    def claim(self, claim, now):
        tasks = claim.tasks and frozenset((task, version) for task, _ in claim.tasks for version in range(9))
        return super().claim(replace(claim, tasks=tasks), now)


class UnknownHeadBlocksTheQueue(Ledger):
    def _next(self, claim, room, served, now):
        head = super()._next(replace(claim, tasks=None), room, served, now)
        known = head and (claim.tasks is None or (head.spec.task, head.spec.version) in claim.tasks)
        return head if known else None


# -- time, people, records, waking -------------------------------------------------------------------------------------


class ExpiryIgnoredByClaims(Ledger):
    @staticmethod
    def _is_overdue(entry, now):
        return False


class RetriesExpire(Ledger):
    def _lease(self, entry, now, **how):
        expires = entry.expires
        super()._lease(entry, now, **how)
        entry.expires = expires


class ResumedJobForgetsItsTime(Ledger):
    def _amend_resume(self, entry, amend, now):
        entry.due = None
        return super()._amend_resume(entry, amend, now)


class SuspendRequestForgotten(Ledger):
    def settle(self, settlement, now):
        if entry := self.jobs.get(settlement.seq):
            entry.suspending = False
        return super().settle(settlement, now)


class UnfinishedJobsCanBeRemoved(Ledger):
    def _amend_remove(self, entry, amend, now):
        self.drop(entry, now, keys_for=None)
        return "done"


class NoCompareAndSet(Ledger):
    def put(self, put, now):
        return super().put(replace(put, expect=None), now)


class InsertWithoutItsRecord(Ledger):
    def put(self, put, now):
        record = super().put(put, now)
        if record is None:
            for spec in put.inserts:
                self.insert(spec, now, bounded=False)
        return record


class RecordWithoutItsInserts(Ledger):
    def put(self, put, now):
        return super().put(replace(put, inserts=()), now)


class FullQueueRefusesWhatARecordBrings(Ledger):
    def put(self, put, now):
        record = super().put(replace(put, inserts=()), now)
        if record is not None:
            for spec in put.inserts:
                self.insert(spec, now)
        return record


class RevisionsStartAnew(Ledger):
    def put(self, put, now):
        there = self.records.get((put.kind, put.name))
        self.revision = there.revision if there else 0
        return super().put(put, now)


class RequestIsNotTold(Ledger):
    def put(self, put, now):
        told = set(self.topics)
        record = super().put(put, now)
        self.topics = told
        return record


class ScheduleIsNotTold(Ledger):
    def put(self, put, now):
        record = super().put(put, now)
        self.topics.discard("schedules")
        return record


class RoomIsNotTold(Ledger):
    def _leave_lease(self, entry):
        told = set(self.topics)
        super()._leave_lease(entry)
        self.topics = told


# -- lost answers and moves --------------------------------------------------------------------------------------------


class RepeatedClaimTakesMore(Ledger):
    def _entries_of_this_call(self, claim):
        return []


class RepeatedClaimTakesFromOthers(Ledger):
    def _entries_of_this_call(self, claim):
        return [entry for entry in self.running.values() if claim.repeats and entry.call == claim.call]


class ReapedLeaseIsAnsweredAgain(Ledger):
    def reap(self, reap, now):
        before = {entry.seq: (entry.worker, entry.call) for entry in self.running.values()}
        taken = super().reap(reap, now)
        for entry in taken:
            entry.worker, entry.call = before[entry.seq]
        return taken


class AdoptedJobKeepsItsFence(Ledger):
    def _entry_of(self, moved, now):
        entry = super()._entry_of(moved, now)
        entry.fence -= 1
        return entry


class AdoptedJobStartsAnew(Ledger):
    def _entry_of(self, moved, now):
        entry = super()._entry_of(moved, now)
        entry.attempt = 0
        return entry


class AdoptedJobIsEarly(Ledger):
    def _entry_of(self, moved, now):
        entry = super()._entry_of(moved, now)
        if entry.state is State.SCHEDULED:
            entry.due = ("wall", now.wall)
        return entry


class AdoptedTwice(Ledger):
    def adopt(self, moved, by, now):
        if entry := self.ids.get(moved.job.id):
            self._exit(entry)
            self.unfinished[entry.spec.queue] -= 1
            del self.ids[moved.job.id], self.jobs[entry.seq]
        return super().adopt(moved, by, now)


class AdoptedNameIsNotHeld(Ledger):
    def adopt(self, moved, by, now):
        answer = super().adopt(moved, by, now)
        if answer.verdict is Verdict.NEW:
            self.uniques.pop(moved.job.spec.unique, None)
        return answer


class OneKeyGoesAlong(Ledger):
    def adopt(self, moved, by, now):
        return super().adopt(replace(moved, keys=dict(list(moved.keys.items())[:1])), by, now)


class AdoptedKeyIsInNobodysWay(Ledger):
    def adopt(self, moved, by, now):
        for key in list(moved.keys)[1:]:
            self.keys.pop(key, None)
        return super().adopt(moved, by, now)


class AdoptedKeyStaysDropped(Ledger):
    def adopt(self, moved, by, now):
        spent = {key: self.keys[key].until for key in moved.keys if key in self.keys}
        answer = super().adopt(moved, by, now)
        for key, until in spent.items():
            self.keys[key].until = until
        return answer


class MovedJobDoesNotSayWhenItIsDue(Ledger):
    def _record(self, entry, kind, now, by, **changed):
        if kind == "moved":
            changed["run_at"] = None
        super()._record(entry, kind, now, by, **changed)


class HeldJobIsPackedWithoutItsTime(Ledger):
    def pack(self, entry, now):
        moved = super().pack(entry, now)
        return replace(moved, job=entry.as_job())


class HistoryStaysBehind(Ledger):
    def _entry_of(self, moved, now):
        entry = super()._entry_of(moved, now)
        entry.history = entry.history[:1]
        return entry


# -- resources ---------------------------------------------------------------------------------------------------------


class OneSlotTooMany(Ledger):
    def lacking(self, entry, now):
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            gauge.used -= 1
            lacks = gauge.lacks(need.slots, now.steady, seq=entry.seq, priority=entry.priority)
            gauge.used += 1
            if lacks:
                return need.resource
        return None


class SuspendedJobKeepsItsSlots(Ledger):
    def settle(self, settlement, now):
        settled = super().settle(settlement, now)
        entry = self.jobs.get(settlement.seq)
        if settled and entry and entry.state is State.SUSPENDED:
            for need in entry.needs:
                self.gauge(need.resource).used += need.slots
        return settled


class TakenOverLeaseFreesItsSlots(Ledger):
    def reap(self, reap, now):
        taken = super().reap(reap, now)
        for entry in taken:
            for need in entry.needs:
                self.gauge(need.resource).used -= need.slots
        return taken


class BlockedJobIsCharged(Ledger):
    def park(self, entry, resource, now):
        entry.attempt += 1
        super().park(entry, resource, now)


class FreedIsNotOffered(Ledger):
    def _leave_lease(self, entry):
        super()._leave_lease(entry)
        self.freed.clear()


class TurnIsLostWithItsJob(Ledger):
    def _release_offers(self, entry):
        self._release_reservation(entry)


class OfferedToOneQueueOnly(Ledger):
    def _offer(self, resource, now):
        waiting = self.blocked.get(resource)
        if waiting:
            first = min(waiting.lanes(), key=lambda lane: waiting.lanes()[lane][0])
            waiting.lanes = lambda: {first: list(waiting._lanes.get(first, ()))}
        return super()._offer(resource, now)


class AllButOneIsTaken(Ledger):
    """Takes what it can have of what it needs."""

    def lacking(self, entry, now):
        return super().lacking(entry, now) if len(entry.needs) == 1 else None


class NothingIsKept(Ledger):
    def _reserve_for(self, entry, now):
        pass


class ReservesForTheSecond(Ledger):
    """Goes on from the first in line, who is told to try, and keeps what it was offered for the next one."""

    def _offer_lane(self, resource, gauge, ranks, now):
        answer = super()._offer_lane(resource, gauge, ranks, now)
        for rank in ranks:
            if (entry := self.jobs[rank.seq]).state is State.BLOCKED:
                self._reserve_for(entry, now)
        return answer

    def lacking(self, entry, now):
        for need in entry.needs:
            gauge = self.gauge(need.resource)
            if gauge.kept and gauge.kept.seq != entry.seq and gauge.used + need.slots + gauge.kept.slots > gauge.limit:
                return need.resource
        return super().lacking(entry, now)


class ReservesForWhomNobodyClaims(Ledger):
    def _unblock(self, entry, now):
        if self._may_reserve_for(entry, now):
            self._reserve_for(entry, now)
        super()._unblock(entry, now)


class LessUrgentKeepsWhatItHas(Ledger):
    def _may_reserve_for(self, entry, now):
        is_free = all(self.gauge(need.resource).kept is None for need in entry.needs)
        return is_free and super()._may_reserve_for(entry, now)


class WholeLineIsParkedAtOnce(Ledger):
    def claim(self, claim, now):
        taken, again = super().claim(claim, now)
        while again and not taken:
            more, again = super().claim(claim, now)
            taken += more
        return taken, again


class EverySecondIsABurst(Ledger):
    def _lease(self, entry, now, **how):
        super()._lease(entry, now, **how)
        for need in entry.needs:
            self.gauge(need.resource).tat -= 1_000_000


class TokenComesBack(Ledger):
    def settle(self, settlement, now):
        if settlement.state is State.QUEUED and (entry := self.jobs.get(settlement.seq)):
            for need in entry.needs:
                self.gauge(need.resource).tat = 0
        return super().settle(settlement, now)


class UnusedStartIsLost(Ledger):
    def _give_starts(self, entry):
        pass


class OnlyTheLatestStartComesBack(Ledger):
    def _give_starts(self, entry):
        if all(self.gauge(need.resource).taken_at == entry.started for need in entry.needs):
            super()._give_starts(entry)


class TokenComesBackTooLate(Ledger):
    """Although another job has started since."""

    def _give_starts(self, entry):
        for need in entry.needs:
            self.gauge(need.resource).tat -= self.gauge(need.resource).every


class UnusedStartComesBackTwice(Ledger):
    def settle(self, settlement, now):
        entry = self.jobs.get(settlement.seq)
        if settlement.unused and entry is not None and entry.state is not State.RUNNING:
            self._give_starts(entry)
        return super().settle(settlement, now)


class UnusedStartStaysUnoffered(Ledger):
    def _give_starts(self, entry):
        super()._give_starts(entry)
        self.unoffered = True

    def offer_freed(self, now):
        if getattr(self, "unoffered", False):
            self.freed.clear()
            self.unoffered = False
        return super().offer_freed(now)


class TimeFreesNothing(Ledger):
    def offer_due_resources(self, now):
        pass


class ShutGateLetsProbesThrough(Ledger):
    def put(self, put, now):
        answer = super().put(put, now)
        if put.kind == "gate":
            self.gauge(put.name).shut_until = 0
        return answer


class EveryoneIsAProbe(Ledger):
    def put(self, put, now):
        answer = super().put(put, now)
        if put.kind == "gate":
            self.gauge(put.name).gate = replace(self.gauge(put.name).gate, probes=None)
        return answer


class WhoeverCameFirstIsGranted(Ledger):
    def _rerank(self, entry, priority, now, **how):
        pass

    def _accept(self, spec, settings, now):
        return super()._accept(replace(spec, priority=5) if spec.holder else spec, settings, now)


class WaitersDeadlineIsForgotten(Ledger):
    def _is_overdue(self, entry, now):
        return entry.spec.holder is None and super()._is_overdue(entry, now)


class FencesOfALockStartAnew(Ledger):
    def _raise_fence(self, entry):
        pass


class WaiterIsNotTold(Ledger):
    def _grant(self, entry, now):
        before = set(self.topics)
        super()._grant(entry, now)
        self.topics &= before


# -- 10 identity, 12 results -------------------------------------------------------------------------------------------


class WorkersGoByTheirHost(Ledger):
    """As if a worker's identity were its host and process number, which a restarted worker may share."""

    def _entries_of_this_call(self, claim):
        host = claim.worker.split()[0]
        held = [e for e in self.running.values() if (e.worker or "").split()[0] == host and e.call == claim.call]
        return held if claim.repeats and claim.call is not None else []


class LongResultsAreCut(Ledger):
    def settle(self, settlement, now):
        if settlement.result is not None:
            settlement = replace(settlement, result=settlement.result[: 1 << 20])
        return super().settle(settlement, now)


class EmptyResultsAreNone(Ledger):
    def settle(self, settlement, now):
        return super().settle(replace(settlement, result=settlement.result or None), now)

"""Bugs in slots, rates, reservations, breakers, retry budgets and locks."""

from __future__ import annotations

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.model import State
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, spared_resource
from daybreak.stores.kernel import moves, resource_queue, settle
from daybreak.stores.kernel.claim import Claiming
from daybreak.stores.kernel.gauges import Gauges
from daybreak.stores.kernel.insert import Inserting
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.transaction import Transaction

# -- slots -------------------------------------------------------------------------------------------------------------


@bug(Gauges, "lacking")
def one_slot_too_many(real, self, job):
    for need in job.needs:
        gauge = self[need.resource]
        gauge.used -= 1
        lacks = gauge.lacks(need.slots, self._table.steady, seq=job.seq, priority=job.priority)
        gauge.used += 1
        if lacks:
            return need.resource
    return None


@bug(Settling, "_write")
def suspended_job_keeps_its_slots(real, self, row, settlement):
    real(self, row, settlement)
    if row.state is State.SUSPENDED:
        for need in row.needs:
            self._tx.gauges[need.resource].used += need.slots


@bug(settle, "_take_over")
def taken_over_lease_frees_its_slots(real, tx, row, request):
    for need in row.needs:
        tx.gauges[need.resource].used -= need.slots
    return real(tx, row, request)


@bug(Gauges, "lacking")
def all_but_one_is_taken(real, self, job):
    """Takes what it can have of what it needs."""
    return real(self, job) if len(job.needs) == 1 else None


# -- waiting -----------------------------------------------------------------------------------------------------------


@bug(resource_queue, "block")
def blocked_job_is_charged(real, tx, row, resource):
    row.attempt += 1
    real(tx, row, resource)


@bug(moves, "end_lease")
def freed_is_not_offered(real, tx, row):
    real(tx, row)
    tx.gauges.freed.clear()


@bug(Gauges, "offer_to_others")
def turn_is_lost_with_its_job(real, self, job):
    pass


@bug(resource_queue, "_waiting_by_lane")
def offered_to_one_queue_only(real, tx, cause):
    lanes = real(tx, cause)
    return [min(lanes, key=lambda seqs: tx.peek(seqs[0]).rank)] if lanes else []


@bug(Gauges, "reserve_for")
def nothing_is_kept(real, self, job, *, since):
    pass


@bug(resource_queue, "_offer_lane")
def reserves_for_the_second(real, tx, resource, gauge, seqs):
    """Goes on from the first in line, who is told to try, and keeps what it was offered for the next one."""
    answer = real(tx, resource, gauge, seqs)
    for row in tx.load(seqs).values():
        if row.state is State.BLOCKED:
            tx.gauges.reserve_for(row, since=row.blocked_since)
    return answer


@reserves_for_the_second.also(Gauges, "lacking")
def _(real, self, job):
    for need in job.needs:
        gauge = self[need.resource]
        if gauge.kept and gauge.kept.seq != job.seq and gauge.used + need.slots + gauge.kept.slots > gauge.limit:
            return need.resource
    return real(self, job)


@bug(resource_queue, "_unblock")
def reserves_for_whom_nobody_claims(real, tx, row):
    if tx.gauges.may_reserve_for(row, since=row.blocked_since):
        tx.gauges.reserve_for(row, since=row.blocked_since)
    real(tx, row)


@bug(Gauges, "may_reserve_for")
def less_urgent_keeps_what_it_has(real, self, job, *, since):
    is_free = all(self[need.resource].kept is None for need in job.needs)
    return is_free and real(self, job, since=since)


@bug(Claiming, "_may_take")
def whole_line_is_parked_at_once(real, self, leased, ended, parked):
    return real(self, leased, ended, 0)


@bug(resource_queue, "offer_due_resources")
def time_frees_nothing(real, tx):
    pass


# -- rates -------------------------------------------------------------------------------------------------------------


@bug(Gauges, "take")
def every_second_is_a_burst(real, self, job):
    real(self, job)
    for need in job.needs:
        self[need.resource].tat -= 1_000_000


@bug(Settling, "_settle")
def token_comes_back(real, self, settlement, row):
    if settlement.state is State.QUEUED and row is not None:
        for need in row.needs:
            self._tx.gauges[need.resource].tat = 0
    return real(self, settlement, row)


@bug(Gauges, "give_starts")
def unused_start_is_lost(real, self, needs, started):
    pass


@bug(Gauges, "give_starts")
def only_the_latest_start_comes_back(real, self, needs, started):
    if all(self[need.resource].taken_at == started for need in needs):
        real(self, needs, started)


@bug(Gauges, "give_starts")
def token_comes_back_too_late(real, self, needs, started):
    """Although another job has started since."""
    for need in needs:
        self[need.resource].tat -= self[need.resource].every


@bug(Settling, "_settle")
def unused_start_comes_back_twice(real, self, settlement, row):
    if settlement.unused and row is not None and row.state is not State.RUNNING:
        self._tx.gauges.give_starts(row.needs, row.started)
    return real(self, settlement, row)


@bug(Gauges, "give_starts")
def unused_start_stays_unoffered(real, self, needs, started):
    real(self, needs, started)
    self.is_forgetful = True


@unused_start_stays_unoffered.also(resource_queue, "offer_freed")
def _(real, tx):
    if getattr(tx.gauges, "is_forgetful", False):
        tx.gauges.freed.clear()
        tx.gauges.is_forgetful = False
    return real(tx)


# -- breakers ----------------------------------------------------------------------------------------------------------


@bug(resource_queue, "set_gate")
def shut_gate_lets_probes_through(real, tx, name, gate):
    real(tx, name, gate)
    tx.gauges[name].shut_until = 0


@bug(resource_queue, "set_gate")
def everyone_is_a_probe(real, tx, name, gate):
    real(tx, name, gate)
    tx.gauges[name].gate = replace(gate, probes=None)


@bug(Transaction, "fail_fast_among")
def patience_is_forced(real, self, seqs):
    return set()


@bug(resource_queue, "_fail_fast_waiters")
def haste_is_forced(real, tx, resource):
    for seqs in resource_queue._waiting_by_lane(tx, resource):
        for row in tx.load(seqs).values():
            moves.finish(tx, row, State.FAILED, by="")


# -- retries of a resource that fails ----------------------------------------------------------------------------------


@bug(Gauges, "lacking")
def retries_are_free(real, self, job):
    lacking = real(self, job)
    return None if lacking is not None and spared_resource(lacking) is not None else lacking


@bug(Gauges, "lacking")
def first_tries_wait_too(real, self, job):
    spent = (need.resource for need in job.needs if not self[need.resource].retries(self._table.steady))
    return real(self, job) or next((RETRY_CAUSE_PREFIX + resource for resource in spent), None)


@bug(resource_queue, "_offer_retries")
def retries_never_come_back(real, tx, cause, gauge):
    return False


@bug(Gauges, "take")
def nothing_is_owed(real, self, job):
    real(self, job)
    for need in job.needs:
        self[need.resource].credit = max(self[need.resource].credit, 0)


@bug(Gauges, "offer_to_others")
def turn_of_a_retry_is_lost(real, self, job):
    real(self, job)
    self.freed -= {name for name in self.freed if spared_resource(name) is not None}


# -- locks -------------------------------------------------------------------------------------------------------------


@bug(moves, "rerank")
def whoever_came_first_is_granted(real, tx, row, priority, *, by):
    pass


@whoever_came_first_is_granted.also(Inserting, "_accept")
def _(real, self, spec, settings):
    return real(self, replace(spec, priority=5) if spec.holder else spec, settings)


@bug(moves, "is_overdue")
def waiters_deadline_is_forgotten(real, tx, job):
    return not (isinstance(job, Row) and job.spec.holder is not None) and real(tx, job)


@bug(Gauges, "next_fence")
def fences_of_a_lock_start_anew(real, self, needs, fence):
    return fence


@bug(resource_queue, "_grant")
def waiter_is_not_told(real, tx, row, holder):
    before = set(tx.topics)
    real(tx, row, holder)
    tx.topics &= before

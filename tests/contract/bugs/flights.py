"""Bugs in flights and known results."""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.flights import FIRST_TO_DROP
from daybreak.core.model import State
from daybreak.store.protocol import Verdict
from daybreak.stores.kernel import amend, flights, landings, moves, settle
from daybreak.stores.kernel.flights import Flights
from daybreak.stores.kernel.insert import Inserting
from daybreak.stores.kernel.port import FlightEntry


@bug(flights, "leave")
def follower_without_leader(real, tx, row):
    """Whoever led is gone, and nobody takes over."""


@bug(flights, "leave")
def failure_is_cached(real, tx, row):
    entry = None if row.flight is None else tx.flights[row.flight]
    if row.state is not State.FAILED or entry is None or entry.leader != row.seq:
        return real(tx, row)
    entry.leader, entry.is_known, entry.has_new_result, entry.job = None, True, True, row.id
    tx.flights.change(entry)
    return None


@bug(Inserting, "_is_known")
def hit_waits_for_queue(real, self, spec):
    return False


@bug(landings, "_follow")
def two_leaders(real, tx, row, entry):
    return Verdict.NEW


@bug(Flights, "drop")
def evicted_result_is_gone(real, self, entry):
    entry.refs = 0
    real(self, entry)


@bug(flights, "hand_over")
def last_come_leads(real, tx, entry):
    waiting = tx.waiting_by_lane
    tx.waiting_by_lane = lambda cause, limit: [[max(seqs)] for seqs in waiting(cause, 100)]
    try:
        real(tx, entry)
    finally:
        del tx.waiting_by_lane


@bug(landings, "join")
def scheduled_job_decides_at_submit(real, tx, row):
    if row.state is not State.SCHEDULED:
        return real(tx, row)
    row.state = State.QUEUED
    verdict = real(tx, row)
    if row.state is State.QUEUED:
        row.state = State.SCHEDULED
    return verdict


@bug(landings, "_complete")
def hits_are_not_counted(real, tx, row, entry, counts_as):
    tx.count = lambda *_: None
    try:
        real(tx, row, entry, counts_as)
    finally:
        del tx.count


@bug(landings, "urge")
def leader_keeps_its_priority(real, tx, row, *, by):
    """An urgent follower waits as long as a leader that is not urgent."""


@bug(landings, "land_due")
def rest_of_the_followers_is_forgotten(real, tx, limit):
    """What one transaction could not complete is never completed."""


@bug(FlightEntry, "is_usable")
def result_is_used_for_ever(real, self, steady):
    return self.counts


@bug(landings, "_make_room")
def size_is_not_limited(real, tx, row, entry):
    """Results are never dropped."""


@bug(settle.Settling, "_write")
def unkept_result_is_kept(real, self, row, settlement):
    return real(self, row, replace(settlement, unkept=False))


@bug(landings, "room_of")
def contents_take_no_room(real, result):
    return len(result)


@bug(landings, "has_room")
def large_result_drops_all_others(real, caching, entries, size):
    return True if entries == 1 and size > 1 else real(caching, entries, size)


@bug(settle.landings, "deliver")
def only_the_first_attempt_counts(real, tx, row, settlement):
    if settlement.attempt > 1:
        flights.leave(tx, row)
    else:
        real(tx, row, settlement)


@bug(landings, "_follow")
def queue_waits_for_another(real, tx, row, entry):
    leader = tx.flights.leader(entry)
    own, row.name = row.name, leader.name
    try:
        return real(tx, row, entry)
    finally:
        row.name = own


@bug(Flights, "release")
def result_ends_with_its_job(real, self, row):
    entry = real(self, row)
    if entry is not None and entry.flight is not None and entry.job == row.id:
        self.drop(entry)
    return entry


@bug(amend._ACTIONS, "retry")
def retried_job_gets_its_old_result(real, tx, row, request):
    drop = Flights.drop
    Flights.drop = lambda self, entry: None
    try:
        return real(tx, row, request)
    finally:
        Flights.drop = drop


@bug(landings, "forget")
def result_lives_while_followers_are_left(real, tx, entry):
    """Only a result without followers is dropped."""
    if not entry.landing:
        real(tx, entry)


@bug(landings, "_least_used")
def only_a_few_make_room(real, tx, entry):
    return islice(real(tx, entry), FIRST_TO_DROP)


@bug(moves, "drop")
def moved_leader_leaves_nobody(real, tx, row, *, keys_for, lives_on=False):
    row.flight = None
    real(tx, row, keys_for=keys_for, lives_on=lives_on)


@bug(landings, "_complete")
def hit_does_not_say_whose_result_it_has(real, tx, row, entry, counts_as):
    real(tx, row, entry, counts_as)
    row.cached_from = None

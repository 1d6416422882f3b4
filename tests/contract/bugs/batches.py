"""Bugs in batch calls: which jobs they take, what these hold, and what becomes of the others."""

from __future__ import annotations

from types import SimpleNamespace

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.model import State
from daybreak.stores.kernel import claim, moves, pass_time, resource_queue
from daybreak.stores.kernel.claim import Claiming
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.settle import Settling


@bug(Claiming, "_lease")
def SkippedJobIsGone(real, self, row, mates):  # noqa: N802 - the name of a bug
    """Takes everything between the first and the last job of the call off the queue."""
    leased = real(self, row, mates)
    tx, last = self._tx, self._leases[-1]
    if last.group is not None and last.seq != row.seq:
        tx.write()
        plain = replace(self._claim, batches={}, job=None)
        heads = tx.heads([row.queue], plain, 300, self._seen).get(row.queue, ())
        for skipped in tx.load([head.seq for head in heads if row.seq < head.seq < last.seq]).values():
            moves.drop(tx, skipped, keys_for=None)
    return leased


@bug(Claiming, "_find_mates")
def BatchMixesKeys(real, self, queue, head, batch, batching):  # noqa: N802
    """Looks for the jobs of another key, too."""
    mates = real(self, queue, head, batch, batching)
    if mates is None or len(mates) + 1 >= batching.size:
        return mates
    other = SimpleNamespace(seq=head.seq, name=head.name, batch="b" if batch == "a" else "a")
    return (*mates, *list(self._tx.company(other, 10, self._spoken_for))[:1])


@bug(Claiming, "_lease")
def CallTakesSlotPerElement(real, self, row, mates):  # noqa: N802
    before = len(self._leases)
    leased = real(self, row, mates)
    for mate in self._leases[before + 1 :]:
        for need in mate.spec.options.resources:
            self._tx.gauges[need.resource].used += need.slots
    return leased


@bug(moves, "end_lease")
def SlotLeaksWithHead(real, tx, row):  # noqa: N802
    """Only the end of the head looks whether the call is over."""
    group, seq = row.group, row.seq
    real(tx, row)
    if group not in (None, seq):
        tx.left_calls.pop(group, None)


@bug(Claiming, "_leads_earlier_call")
def two_calls_have_one_number(real, claiming, head):
    """A job that left the call it began begins another, while the first one still runs."""
    return False


@bug(resource_queue, "_leave_calls")
def slot_is_free_with_the_head(real, tx):
    """The first end of a lease gives the slots of the whole call back."""
    for needs in tx.left_calls.values():
        tx.gauges.give(needs)
    tx.left_calls.clear()


@bug(Row, "company_at")
def those_who_wait_are_left_behind(real, self, place):
    return real(self, place) if place.state is State.QUEUED else None


@bug(moves, "release_offers")
def offer_is_lost_with_a_mate(real, tx, row):
    pass


@bug(Claiming, "_lease")
def every_element_counts_towards_the_limit(real, self, row, mates):
    leased = real(self, row, mates)
    self._started += leased - 1
    return leased


@bug(Claiming, "_find_mates")
def mates_need_no_room(real, self, queue, head, batch, batching):
    room, queue.room = queue.room, 1000
    mates = real(self, queue, head, batch, batching)
    queue.room = room
    return mates


@bug(claim, "_fits")
def any_priority_fits(real, mate, head):
    return mate.needs == head.needs and not mate.is_suspect


@bug(claim, "_fits")
def any_needs_fit(real, mate, head):
    return real(SimpleNamespace(priority=mate.priority, needs=head.needs, is_suspect=mate.is_suspect), head)


@bug(claim, "_fits")
def suspect_runs_with_others(real, mate, head):
    return real(SimpleNamespace(priority=mate.priority, needs=mate.needs, is_suspect=False), head)


@bug(Claiming, "_decide")
def waiting_key_blocks_its_queue(real, self, queue, head):
    candidate = real(self, queue, head)
    if candidate is None:
        queue.room = 0
    return candidate


@bug(Claiming, "_next_in")
def ripening_is_not_told(real, self):
    return pass_time.next_in(self._tx)


@bug(Settling, "_is_start_unused")
def token_comes_back_with_the_head(real, self, row):
    return row.group in (None, row.seq)


@bug(claim, "_place_in_call")
def repeated_claim_tears_calls_apart(real, row):
    return (row.seq, False, row.rank)


@bug(moves, "complete_call")
def call_is_not_counted(real, tx, head, *, by, took):
    pass

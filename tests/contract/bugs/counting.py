"""Bugs in totals, and in full queues."""

from __future__ import annotations

from msgspec.structs import replace

from bugs.planting import bug
from daybreak.core.model import Reason, State
from daybreak.store.protocol import Claim
from daybreak.stores.kernel import moves
from daybreak.stores.kernel.insert import Inserting
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.totals import Added
from daybreak.stores.kernel.transaction import Transaction
from daybreak.stores.memory import transaction as memory_transaction
from daybreak.stores.memory.book import Book
from daybreak.stores.memory.transaction import MemoryTransaction

# -- totals ------------------------------------------------------------------------------------------------------------


@bug(Settling, "_settle")
def refused_settlement_counts(real, self, settlement, row):
    settled = real(self, settlement, row)
    if not settled and row is not None:
        self._tx.count_settled(row, settlement)
    return settled


@bug(Settling, "_settle")
def repeated_settlement_counts(real, self, settlement, row):
    if row is not None and row.state is not State.RUNNING and row.fence == settlement.fence:
        self._tx.count_settled(row, settlement)
    return real(self, settlement, row)


@bug(Inserting, "_find_existing")
def duplicates_are_submitted(real, self, spec):
    answer = real(self, spec)
    if answer is not None and answer.same == "id":
        self._tx.count(self._tx.peek(answer.seq), "submitted")
    return answer


@bug(moves, "drop")
def totals_go_with_their_jobs(real, tx, row, **how):
    real(tx, row, **how)
    tx.totals.added.setdefault((row.name, row.priority, "completed"), Added()).n -= 1


@bug(Transaction, "count_settled")
def every_job_is_a_batch(real, self, row, settlement):
    real(self, row, settlement)
    added = self.totals.added[row.name, row.priority, settlement.counts_as]
    added.batches = added.n


@bug(memory_transaction, "add_counter")
def latest_is_a_sum(real, counters, name, added):
    there = counters.get(name, (0, 0))
    counters[name] = (there[0] + added[0], there[1] + added[1])


@bug(Transaction, "count")
def expired_is_not_counted(real, self, row, what):
    if what != "failed expired":
        real(self, row, what)


# -- full queues -------------------------------------------------------------------------------------------------------


@bug(Inserting, "_find_victim")
def sheds_anyone(real, self, spec, crowded):
    self._tx.write()
    seq = self._tx.last_in_rank(spec.queue, None)
    return None if seq is None else self._tx.load_one(seq)


@bug(Inserting, "_find_victim")
def sheds_the_first(real, self, spec, crowded):
    self._tx.write()
    heads = self._tx.heads([spec.queue], Claim(worker=""), 1, ())
    head = next(heads.get(spec.queue, iter(())), None)
    row = None if head is None else self._tx.load_one(head.seq)
    return row if row is not None and row.priority > spec.priority else None


@bug(MemoryTransaction, "last_in_rank")
def sheds_queued_jobs_only(real, self, queue, cause):
    last = self.book.ready.tail(queue)
    return None if last is None else last.seq


@bug(MemoryTransaction, "last_in_rank")
def sheds_waiters_only_if_none_is_queued(real, self, queue, cause):
    last = self.book.ready.tail(queue)
    return last.seq if last is not None and cause is None else real(self, queue, cause)


@bug(Inserting, "_find_victim", needs_book=True)
def sheds_the_holder(real, self, spec, crowded):
    rows = [self._tx.load_one(seq) for seq in sorted(self._tx.book.running)]
    running = [row for row in rows if row.queue == spec.queue]
    return real(self, spec, crowded) or (running[0] if running else None)


@bug(Book, "displace")
def shed_waiter_is_still_counted(real, self, row, place):
    if place.state is State.BLOCKED:
        self.parked.discard(row.name, row.rank)
    else:
        real(self, row, place)


@bug(Inserting, "_find_victim")
def sheds_any_waiter_at_a_resource(real, self, spec, crowded):
    return real(self, spec, [])


@bug(Inserting, "_find_victim")
def sheds_at_one_of_two_resources(real, self, spec, crowded):
    return real(self, spec, crowded[:1])


@bug(Transaction, "_note_move")
def sheds_in_silence(real, self, row, before, after):
    real(self, row, before, after)
    if row.reason == Reason.SHED:
        self.topics.clear()


@bug(Inserting, "_limit_wait")
def shrinks_for_everyone(real, self, row, spec, settings):
    real(self, row, replace(spec, priority=10), settings)

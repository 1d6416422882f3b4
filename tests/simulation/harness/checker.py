"""Judges a history: every commit in its order against the book, then the store as it stands at the end.

I1  no accepted job lost                 I2  no job from nowhere              I3  one key, one job
I4  one accepted outcome per lease       I5  fences rise                      I6  stale holders are refused
I7  final is final                       I8  transitions legal                I9  events are the state
I10 priority, then first in first out    I11 aging starves nobody             I12 limits never exceeded
I14 attempts exact                       I15 only a death alone ends a job    I16 cancelled is cancelled
I17 nothing before its time              I20 recovery within two leases       I21 the living keep their leases
I22 no more begun than slots             I23 a stopped worker holds nothing   I24 counts are a recount
I25 outcomes are true                    I26 a call is of one kind, and runs as it was leased
I27 slots in use are the calls that run  I28 a follower has a leader or a result
I29 one execution per flight             I30 a result is that of the leader, and no failure is kept
P8  time without contact counts for nobody
"""

from __future__ import annotations

from daybreak.core.model import Job
from daybreak.store.protocol import Store
from harness import rules_batches, rules_end, rules_lease, rules_submit, rules_worker
from harness.book import Book, Violation
from harness.history import History
from harness.plan import Plan
from harness.replay import replay

__all__ = ["Violation", "judge"]


def judge(history: History, store: Store, unfinished: list[Job], plan: Plan) -> list[Violation]:
    book = Book(history, slots=plan.slots, limits=plan.limits)
    recoveries = rules_lease.Recoveries(history)
    for index, commit in enumerate(history.commits):
        recoveries.before(index, book)
        book.at = index
        rules_worker.check_stopped(book)
        replay(book, commit)
        recoveries.after(commit, book)
    rules_submit.check(book)
    rules_end.check(book, store, unfinished)
    rules_worker.check(book)
    rules_batches.check(book)
    return book.violations

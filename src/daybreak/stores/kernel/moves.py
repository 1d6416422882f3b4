"""The moves that every transition is made of: where a job belongs, how a lease begins and ends, how a job ends."""

from __future__ import annotations

from daybreak.core.model import FINAL, Reason, State
from daybreak.core.rank import rank_of
from daybreak.core.units import span
from daybreak.stores.kernel import flights
from daybreak.stores.kernel.port import Head, Mate
from daybreak.stores.kernel.row import STEADY, Row
from daybreak.stores.kernel.transaction import Transaction


def settle_in(tx: Transaction, row: Row) -> None:
    """Let a job wait where it belongs now: scheduled until its time has come; blocked, if something keeps it from
    being claimed; otherwise queued. What a job is blocked on is offered before this transaction ends."""
    tx.change(row)
    if is_early(tx, row):
        row.state = State.SCHEDULED
        return
    row.clock = row.due = None
    if not row.needs or row.spec.holder is None:  # a job with a holder needs what it holds
        row.state, row.cause = State.QUEUED, None
        return
    # Only its holder runs it, and the resource leases it to the holder.
    row.state, row.cause = State.BLOCKED, row.needs[0].resource
    row.blocked_since = row.blocked_since or tx.steady
    tx.gauges.freed.add(row.cause)


def is_early(tx: Transaction, row: Row) -> bool:
    """Whether the time of a job has not come."""
    return row.due is not None and row.due > (tx.steady if row.clock == STEADY else tx.wall)


def is_overdue(tx: Transaction, job: Head | Mate) -> bool:
    """Whether a job has waited too long for its first start."""
    return job.expires is not None and job.expires <= tx.steady


# -- leases ------------------------------------------------------------------------------------------------------------


def start_lease(
    tx: Transaction,
    row: Row,
    *,
    worker: str,
    term: int,
    call: str | None = None,
    ahead: bool = False,
    group: int | None = None,
) -> None:
    """Lease a job. What it needs is taken already."""
    row.state, row.cause, row.blocked_since = State.RUNNING, None, None
    row.clock = row.due = row.expires = None
    row.note, row.message, row.progress = "", "", None
    row.attempt += 1
    row.fence += 1
    if row.needs and row.spec.holder is not None:
        row.fence = tx.gauges.next_fence(row.needs, row.fence)
    row.worker, row.call, row.ahead, row.group = worker, call, ahead, group
    row.term, row.until, row.started = term, tx.steady + term, tx.wall
    tx.record(row, "started", worker, state=State.RUNNING, attempt=row.attempt, fence=row.fence)
    tx.change(row)


def start_call(tx: Transaction, head: Row, elements: int) -> None:
    """Begin a batch call of so many jobs, which are leased already."""
    head.elements = elements
    if elements > 1:
        tx.record(head, "batch_started", head.worker or "", note=f"{elements} jobs")
    tx.change(head)


def complete_call(tx: Transaction, head: Row, *, by: str, took: int) -> None:
    """Count a batch call, when its head is settled by the worker that ran it."""
    tx.totals.add(head.name, head.priority, "calls", 1, took)
    tx.totals.add(head.name, head.priority, "elements", head.elements, took)
    if head.elements > 1:
        tx.record(head, "batch_completed", by, note=f"{head.elements} jobs")


def end_lease(tx: Transaction, row: Row) -> None:
    """Give back what a lease holds. The caller decides where the job goes."""
    if row.needs and row.group is None:
        tx.gauges.give(row.needs)
    elif row.needs and row.group is not None:
        tx.left_calls[row.group] = row.needs  # given back if no other job of the call still runs
    row.worker = row.until = row.call = row.group = row.cancelling = None
    row.elements = 0
    row.reaped = row.alone = row.ahead = row.suspending = row.detached = False
    row.term = 0


# -- ends --------------------------------------------------------------------------------------------------------------


def finish(
    tx: Transaction,
    row: Row,
    state: State,
    *,
    by: str,
    reason: Reason | None = None,
    note: str = "",
    kind: str | None = None,
    replaced_by: str | None = None,
) -> None:
    """End a job without an outcome of its own: cancelled, replaced, expired, shed or refused by a breaker."""
    release_offers(tx, row)
    if row.state is State.RUNNING:
        end_lease(tx, row)
    row.state, row.reason, row.note = state, reason, note
    keep = row.options.keep_failed if state is State.FAILED else row.options.keep_completed
    close(tx, row, None if keep is None else span(keep))
    tx.count(row, state.value if reason is None else f"{state} {reason}")
    changed = {"state": state, "reason": reason, "attempt": row.attempt, "note": note, "replaced_by": replaced_by}
    tx.record(row, kind or state.value, by, **changed)
    flights.leave(tx, row)


def close(tx: Transaction, row: Row, keep_for: int | None) -> None:
    """Common to every job that ends: its timers stop, and its unique name is free."""
    assert row.state in FINAL
    row.clock = row.due = row.expires = row.cause = None
    row.finished = tx.wall
    row.purge_at = None if keep_for is None else tx.steady + keep_for
    tx.release_name(row)
    tx.change(row)


def expire(tx: Transaction, row: Row) -> None:
    """Fail a job that waited too long for its first start."""
    finish(tx, row, State.FAILED, by="", reason=Reason.EXPIRED, kind="expired")


def drop(tx: Transaction, row: Row, *, keys_for: int | None, lives_on: bool = False) -> None:
    """Delete a job. Its keys are spent until `keys_for` microseconds after their submit, or from now if the job
    `lives_on` in another store; None frees them at once."""
    if row.state not in FINAL:
        release_offers(tx, row)
        if row.state is State.RUNNING:
            end_lease(tx, row)
        flights.leave(tx, row)
    if row.result_of is not None:
        tx.flights.release(row)
    tx.release_name(row)
    tx.write_pending_keys()
    if keys_for is None:
        tx.free_keys(row.id)
    else:
        tx.spend_keys(row, keys_for, tx.steady if lives_on else None)
    tx.drop(row)


# -- rank and offers ---------------------------------------------------------------------------------------------------


def rerank(tx: Transaction, row: Row, priority: int | None, *, by: str) -> None:
    """Give a waiting job another priority, or the rank that the queue's present discipline gives."""
    tx.gauges.release_reservation(row)
    before = row.priority
    row.priority = before if priority is None else priority
    update_rank(tx, row)
    if row.priority != before:
        tx.record(row, "reprioritised", by, priority=row.priority)
    tx.change(row)


def update_rank(tx: Transaction, row: Row) -> None:
    """Rank a job that comes back to its queue. A change of the discipline re-ranks only the jobs that wait then."""
    row.band, row.ord, _ = rank_of(tx.settings(row.queue), row.priority, row.arrived, row.seq)


def release_offers(tx: Transaction, row: Row) -> None:
    """Pass on the slots that were reserved for a job or, if it is queued, offered to it."""
    if row.needs:
        tx.gauges.release_reservation(row)
        if row.state is State.QUEUED:
            tx.gauges.offer_to_others(row)

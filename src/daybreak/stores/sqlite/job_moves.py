"""Loads a job, deletes it from the table of its state, and inserts it into another. One job at a time; insert, claim
and settle write the common cases in batches."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from daybreak.core.events import Event
from daybreak.core.model import Reason, State
from daybreak.core.rank import rank_of
from daybreak.core.units import moment, span
from daybreak.store.protocol import job_topic, work_topic
from daybreak.stores.sqlite import gauge_rows
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import (
    STEADY,
    Row,
    joined,
    may_shorten,
    pack_carry,
    shorten,
    unpack_carry,
    unpack_options,
)
from daybreak.stores.sqlite.statements import sql


def load_id(ledger: Ledger, job: str) -> Row | None:
    seq = ledger.value(sql.seq_of_id, (job,))
    return None if seq is None else load(ledger, seq)


def load(ledger: Ledger, seq: int) -> Row | None:
    row = _load_job(ledger, seq)
    if row is None:
        return None
    for load_from in (_in_lease, _in_ready, _in_done, _in_delayed, _in_held):
        if load_from(ledger, row):
            return row
    raise AssertionError(f"job {row.id} is in no state")


def _load_job(ledger: Ledger, seq: int) -> Row | None:
    found = ledger.execute(sql.load_job, (seq,)).fetchone()
    if found is None:
        return None
    lane = found[2]
    return Row(found[0], found[1], lane, ledger.name_of(lane), *found[3:])


def _common(row: Row, state: State, found: tuple[Any, ...]) -> None:
    row.state = state
    row.attempt, row.fence, row.n = found[:3]
    row.carry = unpack_carry(found[3])
    row.history = found[4]


def _in_lease(ledger: Ledger, row: Row) -> bool:
    if (found := ledger.execute(sql.load_lease, (row.seq,)).fetchone()) is None:
        return False
    _common(row, State.RUNNING, found)
    row.worker, row.until, row.term, row.carry.started, row.call = found[5:10]
    row.reaped, row.alone, row.suspending, row.cancelling = bool(found[10]), bool(found[11]), bool(found[12]), found[13]
    row.ahead = bool(found[14])
    return True


def _in_ready(ledger: Ledger, row: Row) -> bool:
    found = ledger.execute(sql.load_ready, (row.lane, row.band, row.ord, row.seq)).fetchone()
    if found is not None:
        _common(row, State.QUEUED, found)
    return found is not None


def _in_delayed(ledger: Ledger, row: Row) -> bool:
    if (found := ledger.execute(sql.load_delayed, (row.seq,)).fetchone()) is None:
        return False
    _common(row, State.SCHEDULED, found)
    row.clock, row.due = found[5:]
    return True


def _in_held(ledger: Ledger, row: Row) -> bool:
    if (found := ledger.execute(sql.load_held, (row.seq,)).fetchone()) is None:
        return False
    _common(row, State(found[5]), found)
    row.clock, row.due, row.cause = found[6:]
    return True


def _in_done(ledger: Ledger, row: Row) -> bool:
    if (found := ledger.execute(sql.load_done, (row.seq,)).fetchone()) is None:
        return False
    _common(row, State(found[5]), found)
    row.reason, started, row.finished, row.purge_at, row.result = found[6:]
    row.carry.started = started
    return True


def leave(ledger: Ledger, row: Row) -> None:
    """Delete a job from the table of its state."""
    match row.state:
        case State.QUEUED:
            ledger.execute(sql.delete_ready, (row.lane, row.band, row.ord, row.seq))
        case State.SCHEDULED:
            ledger.execute(sql.delete_delayed, (row.seq,))
        case State.SUSPENDED | State.BLOCKED:
            ledger.execute(sql.delete_held, (row.seq,))
            row.cause = None
        case State.RUNNING:
            ledger.execute(sql.delete_lease, (row.seq,))
            if ledger.settings(row.queue).max_running is not None:
                ledger.wake(work_topic(row.queue))
            gauge_rows.give(ledger, gauge_rows.needs_of(row))
            row.worker = row.until = row.call = row.cancelling = None
            row.reaped = row.alone = row.ahead = row.suspending = False
        case State.COMPLETED | State.FAILED | State.CANCELLED:
            ledger.execute(sql.delete_done, (row.seq,))
    ledger.tally(row.lane, row.priority, row.state, -1)


def enter(ledger: Ledger, row: Row) -> None:
    """Insert a job into the table of its state. Its history must be complete."""
    carry = pack_carry(row.carry)
    moving = (row.attempt, row.fence, row.n, carry, row.history)
    match row.state:
        case State.QUEUED:
            ledger.execute(sql.insert_ready, (row.lane, row.band, row.ord, row.seq, *moving))
            ledger.wake(work_topic(row.queue))
        case State.SCHEDULED:
            ledger.execute(sql.insert_delayed, (row.seq, row.clock, row.due, *moving))
            ledger.wake(work_topic(row.queue))
        case State.SUSPENDED | State.BLOCKED:
            place_ = (row.cause, row.lane, row.band, row.ord)
            ledger.execute(sql.insert_held, (row.seq, row.state.value, *place_, row.clock, row.due, *moving))
        case State.COMPLETED | State.FAILED | State.CANCELLED:
            started = row.carry.started
            row.carry.started = None
            ledger.execute(
                sql.insert_done,
                (
                    row.seq, row.state.value, row.reason, row.attempt, row.fence, row.n, started, row.finished,
                    row.purge_at, row.result, pack_carry(row.carry), row.history,
                ),
            )  # fmt: skip
            row.carry.started = started
        case State.RUNNING:
            raise AssertionError("only a claim or a grant inserts leases")
    ledger.tally(row.lane, row.priority, row.state)


def record(ledger: Ledger, row: Row, kind: str, by: str, **changed: Any) -> None:
    event = Event(n=row.n + 1, kind=kind, job=row.id, at=ledger.at, by=by, **changed)
    record_event(ledger, row, event)


def record_event(ledger: Ledger, row: Row, event: Event) -> None:
    """Publish an event and keep it in the job's history."""
    row.n = event.n
    row.history = append_history(ledger, row.seq, event.n, row.history, ledger.publish(event))


def append_history(ledger: Ledger, seq: int, n: int, history: bytes | None, line: bytes) -> bytes:
    """A history with one more line; folded if it has become too long."""
    longer = joined(history, line)
    if not may_shorten(n):
        return longer
    row = _load_job(ledger, seq)
    return longer if row is None else shorten(row.first_event(), longer)


def finish(
    ledger: Ledger,
    row: Row,
    state: State,
    *,
    by: str,
    reason: Reason | None = None,
    note: str = "",
    kind: str = "",
    replaced_by: str | None = None,
) -> None:
    """End a job without an outcome of its own: cancelled, replaced, expired, shed or refused by a breaker."""
    gauge_rows.release_offers(ledger, row)
    leave(ledger, row)
    options = unpack_options(row.options)
    keep = options.keep_failed if state is State.FAILED else options.keep_completed
    row.state, row.reason, row.carry.note = state, reason, note
    row.clock = row.due = None
    row.finished = ledger.wall
    row.purge_at = None if keep is None else ledger.steady + span(keep)
    forget_expiry(ledger, row)
    release_unique(ledger, row)
    changed = {"state": state, "reason": reason, "attempt": row.attempt}
    record(ledger, row, kind or state.value, by, **changed, note=note, replaced_by=replaced_by)
    enter(ledger, row)
    ledger.count(row.lane, row.priority, {state.value if reason is None else f"{state} {reason}": (1, 0)})
    ledger.wake(job_topic(row.id))


def expire(ledger: Ledger, row: Row) -> None:
    finish(ledger, row, State.FAILED, by="", reason=Reason.EXPIRED, kind="expired")


def rerank(ledger: Ledger, row: Row, priority: int | None, *, by: str) -> None:
    gauge_rows.release_reservation(ledger, gauge_rows.needs_of(row), row.seq)
    cause = row.cause
    leave(ledger, row)
    row.cause = cause
    before = row.priority
    row.priority = before if priority is None else priority
    update_rank(ledger, row)
    if row.priority != before:
        ledger.execute(sql.rerank_job, (row.band, row.ord, row.priority, row.seq))
        record(ledger, row, "reprioritised", by, priority=row.priority)
    enter(ledger, row)


def update_rank(ledger: Ledger, row: Row) -> None:
    """Rank a job that comes back to its queue by the queue's present discipline: a change of the discipline re-ranks
    only the jobs that wait at that time."""
    band, order, _ = rank_of(ledger.settings(row.queue), row.priority, row.arrived, row.seq)
    if (band, order) != (row.band, row.ord):
        row.band, row.ord = band, order
        ledger.execute(sql.rerank_job, (band, order, row.priority, row.seq))


def drop(ledger: Ledger, row: Row, *, keys_for: int | None, lives_on: bool = False) -> None:
    """Delete a job. Its keys are spent until `keys_for` microseconds after their submit, or from now if the job
    `lives_on` in another store; None frees them at once."""
    gauge_rows.release_offers(ledger, row)
    leave(ledger, row)
    release_unique(ledger, row)
    if keys_for is None:
        ledger.execute(sql.delete_keys, (row.id,))
    else:
        ledger.execute(sql.spend_keys, (keys_for, ledger.steady if lives_on else None, row.arrived, row.id))
    # A sequence number is never used twice, even if the newest job is deleted.
    if row.seq == ledger.value(sql.last_seq):
        ledger.execute(sql.set_meta, ("seq", row.seq))
    ledger.execute(sql.delete_job, (row.seq,))
    ledger.known.last_id = None


def forget_expiry(ledger: Ledger, row: Row) -> None:
    if row.expires is not None:
        ledger.execute(sql.forget_expiry, (row.seq,))
        row.expires = None


def release_unique(ledger: Ledger, row: Row) -> None:
    if row.uniq is not None:
        ledger.execute(sql.delete_unique, (row.uniq, row.seq))


def first_state(ledger: Ledger, row: Row) -> State:
    """The state of a job that may start: queued. A job with a holder is blocked instead, and its resource is offered
    before this request ends."""
    if row.spec.holder is None:
        return State.QUEUED
    row.cause = gauge_rows.needs_of(row)[0].resource
    row.carry.blocked_since = row.carry.blocked_since or ledger.steady
    ledger.freed.add(row.cause)
    return State.BLOCKED


def is_early(ledger: Ledger, row: Row) -> bool:
    return row.due is not None and row.due > (ledger.steady if row.clock == STEADY else ledger.wall)


def due_at(row: Row) -> datetime | None:
    return moment(row.due) if row.due is not None and row.state is State.SCHEDULED else None

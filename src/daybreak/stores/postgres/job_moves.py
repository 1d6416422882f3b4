"""Moves jobs between tables: load a job, take it out of its table, put it into another.

A transaction that changes a job holds the lock on its row. A job that moves while the transaction waits for that lock
is looked up again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from daybreak.core.events import Event
from daybreak.core.model import FINAL, Reason, State
from daybreak.core.rank import rank_of
from daybreak.core.units import span
from daybreak.store.protocol import job_topic, work_topic
from daybreak.stores.postgres import event_lines
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Floats, Ints, Smallints, Texts
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import STEADY, Row, Values, pack_carry, pack_needs, text_bytes, unpack_options

TABLES = {
    State.RUNNING: "lease",
    State.QUEUED: "ready",
    State.SCHEDULED: "delayed",
    State.SUSPENDED: "held",
    State.BLOCKED: "held",
    State.COMPLETED: "done",
    State.FAILED: "done",
    State.CANCELLED: "done",
}


def read_rows(ledger: Ledger, seqs: Sequence[int]) -> dict[int, Row]:
    """Read jobs without a lock. To change a job, `load` it."""
    rows = ledger.rows(ledger.sql.load_jobs, (Bigints(seqs),))
    return {values[0]: Row.of(values, ledger.name_of(values[2])) for values in rows}


def load_all(ledger: Ledger, seqs: Iterable[int]) -> dict[int, Row]:
    """Load jobs and lock them until the end of the transaction; jobs that do not exist are left out.

    A change of a job that needs resources requires the resource lock, which must be taken before any other lock."""
    wanted = list(dict.fromkeys(seqs))
    while True:
        rows = read_rows(ledger, wanted)
        unlocked: dict[str, list[int]] = {}
        for seq, row in rows.items():
            if seq not in ledger.locked:
                if row.needs and row.state not in FINAL:
                    ledger.require_resource_lock()
                unlocked.setdefault(TABLES[row.state], []).append(seq)
        if not unlocked:
            return rows
        for table, table_seqs in sorted(unlocked.items()):
            statement = ledger.sql.text(f"lock_{table}")
            for (seq,) in ledger.rows(statement, (Bigints(sorted(table_seqs)),)):
                ledger.locked[seq] = rows[seq].state


def load(ledger: Ledger, seq: int) -> Row | None:
    return load_all(ledger, [seq]).get(seq)


def load_id(ledger: Ledger, job: str) -> Row | None:
    seq = ledger.value(ledger.sql.seq_of_id, (job,))
    return None if seq is None else load(ledger, seq)


def leave(ledger: Ledger, row: Row) -> None:
    """Delete a job from the table of its state."""
    sql = ledger.sql
    match row.state:
        case State.QUEUED:
            ledger.run(
                sql.delete_ready, (Ints([row.lane]), Smallints([row.band]), Bigints([row.ord]), Bigints([row.seq]))
            )
        case State.RUNNING:
            ledger.run(sql.delete_lease, (Bigints([row.seq]),))
            left_lease(ledger, row.queue)
            if row.needs:
                ledger.gauges.give(row.needs)
            row.worker = row.until = row.term = row.call = row.cancelling = None
            row.reaped = row.alone = row.ahead = row.suspending = None
        case State.BLOCKED:
            ledger.run(sql.delete_held, (Bigints([row.seq]),))
            ledger.gauges.count_waiting(row.cause or "", -1)
        case _:
            ledger.run(sql.text(f"delete_{TABLES[row.state]}"), (Bigints([row.seq]),))
    ledger.tally(row.lane, row.priority, row.state, -1)


def left_lease(ledger: Ledger, queue: str) -> None:
    if ledger.settings(queue).max_running is not None:
        ledger.wake(work_topic(queue))


def enter(ledger: Ledger, row: Row) -> None:
    """Insert a job into the table of its state. Its history must be complete by now."""
    enter_all(ledger, [row])


def enter_all(ledger: Ledger, rows: Sequence[Row]) -> None:
    sql = ledger.sql
    by_table: dict[str, list[Row]] = {}
    for row in rows:
        by_table.setdefault(TABLES[row.state], []).append(row)
        ledger.tally(row.lane, row.priority, row.state)
        ledger.locked[row.seq] = row.state
        if row.state in (State.QUEUED, State.SCHEDULED):
            ledger.wake(work_topic(row.queue))
        elif row.state is State.BLOCKED:
            ledger.gauges.count_waiting(row.cause or "")
    for table, group in by_table.items():
        seqs = Bigints([row.seq for row in group])
        moving = _moving_columns(group)
        match table:
            case "ready":
                ledger.run(
                    sql.insert_ready,
                    (
                        Ints([r.lane for r in group]), Smallints([r.band for r in group]),
                        Smallints([r.priority for r in group]), Bigints([r.ord for r in group]), seqs,
                        Bigints([r.expires for r in group]), *moving, Texts([pack_needs(r.needs) for r in group]),
                    ),
                )  # fmt: skip
            case "delayed":
                ledger.run(
                    sql.insert_delayed,
                    (seqs, Smallints([r.clock for r in group]), Bigints([r.due for r in group]), *moving),
                )
            case "held":
                ledger.run(
                    sql.insert_held,
                    (
                        seqs, Texts([r.state.value for r in group]),
                        Texts([r.cause if r.state is State.BLOCKED else None for r in group]),
                        Ints([r.lane for r in group]), Smallints([r.band for r in group]),
                        Bigints([r.ord for r in group]),
                        Smallints([r.clock for r in group]), Bigints([r.due for r in group]), *moving,
                    ),
                )  # fmt: skip
            case "done":
                ledger.run(
                    sql.insert_done,
                    (
                        seqs, Texts([r.state.value for r in group]), Texts([r.reason for r in group]),
                        Bigints([r.finished for r in group]), Bigints([r.purge_at for r in group]),
                        Blobs([r.result for r in group]), *moving,
                    ),
                )  # fmt: skip
            case _:
                raise AssertionError("leases are entered by enter_leases")


def move_all(ledger: Ledger, rows: Sequence[Row], state: State) -> None:
    """Move jobs from `ready` to `held`, or back. Their histories must be complete by now."""
    sql = ledger.sql
    if not rows:
        return
    if state is State.BLOCKED:
        ledger.run(
            sql.delete_ready,
            (
                Ints([r.lane for r in rows]), Smallints([r.band for r in rows]), Bigints([r.ord for r in rows]),
                Bigints([r.seq for r in rows]),
            ),
        )  # fmt: skip
    else:
        ledger.run(sql.delete_held, (Bigints([r.seq for r in rows]),))
    for row in rows:
        ledger.tally(row.lane, row.priority, row.state, -1)
        if row.state is State.BLOCKED:
            ledger.gauges.count_waiting(row.cause or "", -1)
        row.state = state
    enter_all(ledger, rows)


def enter_leases(ledger: Ledger, leases: Sequence[Values]) -> None:
    """Insert leases; the columns are those of the statement `insert_lease`."""
    (seq, lane, priority, uniq, attempt, fence, n, worker, until, term, started, call, carry, history, needs,
     ahead) = zip(*leases, strict=True)  # fmt: skip
    ledger.run(
        ledger.sql.insert_lease,
        (
            Bigints(seq), Ints(lane), Smallints(priority), Texts(uniq), Ints(attempt), Ints(fence), Ints(n),
            Texts(worker), Bigints(until), Bigints(term), Bigints(started), Texts(call), Blobs(carry), Texts(history),
            Texts(needs), Bools(ahead),
        ),
    )  # fmt: skip
    ledger.locked.update(dict.fromkeys(seq, State.RUNNING))
    for (lane_id, level), count in Counter(zip(lane, priority, strict=True)).items():
        ledger.tally(lane_id, level, State.RUNNING, count)


def _moving_columns(rows: Sequence[Row]) -> tuple[Any, ...]:
    return (
        Ints([r.attempt for r in rows]), Ints([r.fence for r in rows]), Ints([r.n for r in rows]),
        Bigints([r.started for r in rows]), Floats([r.progress for r in rows]),
        Blobs([pack_carry(r.carry) for r in rows]), Blobs([r.note for r in rows]),
        Blobs([r.message for r in rows]), Texts([r.history for r in rows]),
    )  # fmt: skip


def record(ledger: Ledger, row: Row, kind: str, by: str, **changed: Any) -> None:
    record_event(ledger, row, Event(n=row.n + 1, kind=kind, job=row.id, at=ledger.at, by=by, **changed))


def record_event(ledger: Ledger, row: Row, event: Event) -> None:
    """Publish an event and append it to the job's history, which is shortened when it gets too long."""
    row.n = event.n
    row.history = event_lines.joined(row.history, ledger.publish(event))
    if event_lines.may_shorten(event.n):
        row.history = event_lines.shorten(row.first_event(), row.history)


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
    """End a job that did not run to an outcome: cancelled, replaced, expired, shed or failed fast at a breaker."""
    release_offers(ledger, row)
    leave(ledger, row)
    options = unpack_options(row.options)
    keep = options.keep_failed if state is State.FAILED else options.keep_completed
    row.state, row.reason, row.note = state, reason, text_bytes(note)
    row.purge_at = None if keep is None else ledger.steady + span(keep)
    close(ledger, row)
    ledger.totals.count(row.lane, row.priority, state.value if reason is None else f"{state} {reason}")
    changed = {"state": state, "reason": reason, "attempt": row.attempt}
    record(ledger, row, kind or state.value, by, **changed, note=note, replaced_by=replaced_by)
    enter(ledger, row)


def close(ledger: Ledger, row: Row) -> None:
    """Common to every job that ends: stop its timers, free its unique name, wake those who wait for it."""
    assert row.state in FINAL
    row.clock = row.due = None
    row.finished = ledger.wall
    if row.expires is not None:
        ledger.run(ledger.sql.forget_expiry, (Bigints([row.seq]),))
        row.expires = None
    release_unique(ledger, row)
    ledger.wake(job_topic(row.id))


def expire(ledger: Ledger, row: Row) -> None:
    finish(ledger, row, State.FAILED, by="", reason=Reason.EXPIRED, kind="expired")


def release_offers(ledger: Ledger, row: Row) -> None:
    """Pass on the slots that were reserved for a job or, if it is queued, offered to it."""
    if row.needs:
        ledger.gauges.release_reservation(row)
        if row.state is State.QUEUED:
            ledger.gauges.offer_to_others(row)


def make_ready(ledger: Ledger, row: Row) -> None:
    """Set the state of a job that no longer waits for its time: queued; or, if a holder runs it, blocked on its first
    resource, which is offered before this transaction ends."""
    row.state = State.QUEUED
    if row.spec.holder is not None:
        row.state, row.cause = State.BLOCKED, row.needs[0].resource
        row.carry.since = row.carry.since or ledger.steady
        ledger.gauges.freed.add(row.cause)


def rerank(ledger: Ledger, row: Row, priority: int | None, *, by: str) -> None:
    if row.needs:
        ledger.gauges.release_reservation(row)
    leave(ledger, row)
    before = row.priority
    row.priority = before if priority is None else priority
    update_rank(ledger, row, moved=row.priority != before)
    if row.priority != before:
        record(ledger, row, "reprioritised", by, priority=row.priority)
    enter(ledger, row)


def update_rank(ledger: Ledger, row: Row, *, moved: bool = False) -> None:
    """Rank a job that returns to its queue by the queue's current discipline: a change of discipline re-ranks only the
    jobs that wait at that time."""
    band, order, _ = rank_of(ledger.settings(row.queue), row.priority, row.arrived, row.seq)
    if moved or (band, order) != (row.band, row.ord):
        row.band, row.ord = band, order
        ledger.run(ledger.sql.rerank_job, (band, order, row.priority, row.seq))


def drop(ledger: Ledger, row: Row, *, keys_for: int | None, lives_on: bool = False) -> None:
    """Delete a job. Its keys stay spent until `keys_for` microseconds after their submit or, if the job `lives_on` in
    another store, after now. None frees the keys at once."""
    if row.state not in FINAL:
        release_offers(ledger, row)
    leave(ledger, row)
    release_unique(ledger, row)
    if keys_for is None:
        ledger.run(ledger.sql.delete_keys, (row.id,))
    else:
        ledger.run(ledger.sql.spend_keys, (keys_for, ledger.steady if lives_on else None, row.arrived, row.id))
    ledger.run(ledger.sql.delete_job, (row.seq,))
    ledger.locked.pop(row.seq, None)


def release_unique(ledger: Ledger, row: Row) -> None:
    if row.uniq is not None:
        ledger.run(ledger.sql.delete_unique, (row.uniq, row.seq))


def is_early(ledger: Ledger, row: Row) -> bool:
    return row.due is not None and row.due > (ledger.steady if row.clock == STEADY else ledger.wall)

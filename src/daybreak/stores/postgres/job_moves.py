"""Where a job stands: load it, take it out of its table, put it into another.

Whoever changes a job holds the row of its place locked. A job that moves while one waits for it is looked for again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from daybreak.core.events import Event
from daybreak.core.model import FINAL, Reason, State
from daybreak.core.rank import place
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


def look(ledger: Ledger, seqs: Sequence[int]) -> dict[int, Row]:
    """Jobs as they are; whoever wants to change them must `load` them."""
    rows = ledger.rows(ledger.sql.load_jobs, (Bigints(seqs),))
    return {values[0]: Row.of(values, ledger.name_of(values[2])) for values in rows}


def load_all(ledger: Ledger, seqs: Iterable[int]) -> dict[int, Row]:
    """Jobs that nobody else can change until the end of the transaction; those that do not exist are left out.

    Whoever changes a job that needs resources is alone with them, and must know so before he locks anything."""
    wanted = list(dict.fromkeys(seqs))
    while True:
        rows = look(ledger, wanted)
        loose: dict[str, list[int]] = {}
        for seq, row in rows.items():
            if seq not in ledger.locked:
                if row.needs and row.state not in FINAL:
                    ledger.must_be_alone()
                loose.setdefault(TABLES[row.state], []).append(seq)
        if not loose:
            return rows
        for table, there in sorted(loose.items()):
            statement = ledger.sql.text(f"lock_{table}")
            for (seq,) in ledger.rows(statement, (Bigints(sorted(there)),)):
                ledger.locked[seq] = rows[seq].state


def load(ledger: Ledger, seq: int) -> Row | None:
    return load_all(ledger, [seq]).get(seq)


def load_id(ledger: Ledger, job: str) -> Row | None:
    seq = ledger.value(ledger.sql.seq_of_id, (job,))
    return None if seq is None else load(ledger, seq)


def leave(ledger: Ledger, row: Row) -> None:
    """Take a job out of where it stands."""
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
            ledger.gauges.wait(row.cause or "", -1)
        case _:
            ledger.run(sql.text(f"delete_{TABLES[row.state]}"), (Bigints([row.seq]),))
    ledger.tally(row.lane, row.priority, row.state, -1)


def left_lease(ledger: Ledger, queue: str) -> None:
    if ledger.settings(queue).max_running is not None:
        ledger.wake(work_topic(queue))


def enter(ledger: Ledger, row: Row) -> None:
    """Put a job where its state belongs. Its history must be complete by now."""
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
            ledger.gauges.wait(row.cause or "")
    for table, of in by_table.items():
        seqs = Bigints([row.seq for row in of])
        moving = _moving(of)
        match table:
            case "ready":
                ledger.run(
                    sql.insert_ready,
                    (
                        Ints([r.lane for r in of]), Smallints([r.band for r in of]),
                        Smallints([r.priority for r in of]), Bigints([r.ord for r in of]), seqs,
                        Bigints([r.expires for r in of]), *moving, Texts([pack_needs(r.needs) for r in of]),
                    ),
                )  # fmt: skip
            case "delayed":
                ledger.run(
                    sql.insert_delayed,
                    (seqs, Smallints([r.clock for r in of]), Bigints([r.due for r in of]), *moving),
                )
            case "held":
                ledger.run(
                    sql.insert_held,
                    (
                        seqs, Texts([r.state.value for r in of]),
                        Texts([r.cause if r.state is State.BLOCKED else None for r in of]),
                        Ints([r.lane for r in of]), Smallints([r.band for r in of]), Bigints([r.ord for r in of]),
                        Smallints([r.clock for r in of]), Bigints([r.due for r in of]), *moving,
                    ),
                )  # fmt: skip
            case "done":
                ledger.run(
                    sql.insert_done,
                    (
                        seqs, Texts([r.state.value for r in of]), Texts([r.reason for r in of]),
                        Bigints([r.finished for r in of]), Bigints([r.purge_at for r in of]),
                        Blobs([r.result for r in of]), *moving,
                    ),
                )  # fmt: skip
            case _:
                raise AssertionError("leases are entered by enter_leases")


def move_all(ledger: Ledger, rows: Sequence[Row], state: State) -> None:
    """From the queue to those who wait, or back. Their histories must be complete by now."""
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
            ledger.gauges.wait(row.cause or "", -1)
        row.state = state
    enter_all(ledger, rows)


def enter_leases(ledger: Ledger, leases: Sequence[Values]) -> None:
    """Rows as the statement `insert_lease` says."""
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
    for (of, at), count in Counter(zip(lane, priority, strict=True)).items():
        ledger.tally(of, at, State.RUNNING, count)


def _moving(rows: Sequence[Row]) -> tuple[Any, ...]:
    return (
        Ints([r.attempt for r in rows]), Ints([r.fence for r in rows]), Ints([r.n for r in rows]),
        Bigints([r.started for r in rows]), Floats([r.progress for r in rows]),
        Blobs([pack_carry(r.carry) for r in rows]), Blobs([r.note for r in rows]),
        Blobs([r.message for r in rows]), Texts([r.history for r in rows]),
    )  # fmt: skip


def tell(ledger: Ledger, row: Row, kind: str, by: str, **changed: Any) -> None:
    remember(ledger, row, Event(n=row.n + 1, kind=kind, job=row.id, at=ledger.at, by=by, **changed))


def remember(ledger: Ledger, row: Row, event: Event) -> None:
    """Publish an event and keep it in the job's history, which never grows too long."""
    row.n = event.n
    row.history = event_lines.joined(row.history, ledger.tell(event))
    if event_lines.may_shorten(event.n):
        row.history = event_lines.shorten(row.first_event(), row.history)


def finish(
    ledger: Ledger, row: Row, state: State, *, by: str, reason: Reason | None = None, note: str = "", kind: str = ""
) -> None:
    """End a job without an outcome of its own: cancelled, replaced, expired, shed or refused by a breaker."""
    wait_no_more(ledger, row)
    leave(ledger, row)
    options = unpack_options(row.options)
    keep = options.keep_failed if state is State.FAILED else options.keep_completed
    row.state, row.reason, row.note = state, reason, text_bytes(note)
    row.purge_at = None if keep is None else ledger.steady + span(keep)
    close(ledger, row)
    ledger.totals.count(row.lane, row.priority, state.value if reason is None else f"{state} {reason}")
    tell(ledger, row, kind or state.value, by, state=state, reason=reason, note=note, attempt=row.attempt)
    enter(ledger, row)


def close(ledger: Ledger, row: Row) -> None:
    """What holds of every job that ends."""
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


def wait_no_more(ledger: Ledger, row: Row) -> None:
    """What was kept for a job, or a queued one was offered, is for the next one."""
    if row.needs:
        ledger.gauges.keep_no_more(row)
        if row.state is State.QUEUED:
            ledger.gauges.pass_on(row)


def stand_first(ledger: Ledger, row: Row) -> None:
    """Where a job stands that waits for nothing else: in its queue; if it is run by its own holder, with those who wait
    for what it needs, who are asked before this transaction ends."""
    row.state = State.QUEUED
    if row.spec.holder is not None:
        row.state, row.cause = State.BLOCKED, row.needs[0].resource
        row.carry.since = row.carry.since or ledger.steady
        ledger.gauges.freed.add(row.cause)


def rerank(ledger: Ledger, row: Row, priority: int | None, *, by: str) -> None:
    if row.needs:
        ledger.gauges.keep_no_more(row)
    leave(ledger, row)
    before = row.priority
    row.priority = before if priority is None else priority
    put_in_place(ledger, row, moved=row.priority != before)
    if row.priority != before:
        tell(ledger, row, "reprioritised", by, priority=row.priority)
    enter(ledger, row)


def put_in_place(ledger: Ledger, row: Row, *, moved: bool = False) -> None:
    """Whatever comes back to its queue stands by today's discipline: a change of it re-ranks only what waits."""
    band, order, _ = place(ledger.settings(row.queue), row.priority, row.arrived, row.seq)
    if moved or (band, order) != (row.band, row.ord):
        row.band, row.ord = band, order
        ledger.run(ledger.sql.rerank_job, (band, order, row.priority, row.seq))


def drop(ledger: Ledger, row: Row, *, keys_for: int | None, lives_on: bool = False) -> None:
    """Forget a job. Its keys are spent until `keys_for` microseconds after their submit, or after now if the job
    `lives_on` in another store; None frees them at once."""
    if row.state not in FINAL:
        wait_no_more(ledger, row)
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

"""What time alone decides: delayed jobs fall due, jobs that waited too long expire, resources come free."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.model import State
from daybreak.stores.postgres import job_moves, resource_queue
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import STEADY, WALL, Row


def promote(ledger: Ledger, limit: int) -> int:
    """Queue what is due; a bounded number, so that a million due at once is no giant transaction."""
    steady, wall, look = _next_due(ledger)
    if look is not None and look <= ledger.steady:
        resource_queue.free_what_time_freed(ledger)
    resource_queue.offer_freed(ledger)
    due: list[int] = []
    if steady is not None and steady <= ledger.steady:
        due += [seq for (seq,) in ledger.rows(ledger.sql.due_jobs, (STEADY, ledger.steady, limit))]
    if wall is not None and wall <= ledger.wall:
        due += [seq for (seq,) in ledger.rows(ledger.sql.due_jobs, (WALL, ledger.wall, limit - len(due)))]
    if due:
        ledger.locked.update(dict.fromkeys(due, State.SCHEDULED))
        rows = job_moves.load_all(ledger, due)
        moved: list[Row] = []
        for seq in due:
            row = rows[seq]
            job_moves.leave(ledger, row)
            row.state, row.clock, row.due = State.QUEUED, None, None
            job_moves.tell(ledger, row, "due", "", state=State.QUEUED)
            moved.append(row)
        job_moves.enter_all(ledger, moved)
    return len(due)


def expire(ledger: Ledger, limit: int) -> int:
    overdue = [seq for (seq,) in ledger.rows(ledger.sql.overdue_jobs, (ledger.steady, limit))]
    rows = job_moves.load_all(ledger, overdue) if overdue else {}
    expired = 0
    for seq in overdue:
        # While one waited for it someone else may have ended or started it.
        if (row := rows.get(seq)) is not None and row.expires is not None and row.state is not State.RUNNING:
            job_moves.expire(ledger, row)
            expired += 1
    return expired


def next_in(ledger: Ledger) -> timedelta | None:
    steady, wall, look = _next_due(ledger)
    firsts = ((steady, ledger.steady), (wall, ledger.wall), (look, ledger.steady))
    delays = [due - hand for due, hand in firsts if due is not None]
    return timedelta(microseconds=max(0, min(delays))) if delays else None


def _next_due(ledger: Ledger) -> tuple[int | None, int | None, int | None]:
    """By steady time, by wall time, and when those who wait for a resource are to be looked at."""
    if ledger.is_alone:
        ledger.gauges.save()
    return ledger.rows(ledger.sql.next_due)[0]  # type: ignore[no-any-return]

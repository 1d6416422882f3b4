"""Changes that happen by time alone: delayed jobs fall due, jobs expire, resources become free."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.model import State
from daybreak.stores.postgres import job_moves, resource_queue
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import STEADY, WALL, Row


def promote(ledger: Ledger, limit: int) -> int:
    """Queue jobs that are due; at most `limit`, so that a million due jobs do not become one huge transaction."""
    steady, wall, resource_due = _next_due(ledger)
    if resource_due is not None and resource_due <= ledger.steady:
        resource_queue.free_due_resources(ledger)
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
            job_moves.record(ledger, row, "due", "", state=State.QUEUED)
            moved.append(row)
        job_moves.enter_all(ledger, moved)
    return len(due)


def expire(ledger: Ledger, limit: int) -> int:
    overdue = [seq for (seq,) in ledger.rows(ledger.sql.overdue_jobs, (ledger.steady, limit))]
    rows = job_moves.load_all(ledger, overdue) if overdue else {}
    expired = 0
    for seq in overdue:
        # It may have ended or started while this transaction waited for its lock.
        if (row := rows.get(seq)) is not None and row.expires is not None and row.state is not State.RUNNING:
            job_moves.expire(ledger, row)
            expired += 1
    return expired


def next_in(ledger: Ledger) -> timedelta | None:
    steady, wall, resource_due = _next_due(ledger)
    next_times = ((steady, ledger.steady), (wall, ledger.wall), (resource_due, ledger.steady))
    delays = [due - clock_now for due, clock_now in next_times if due is not None]
    return timedelta(microseconds=max(0, min(delays))) if delays else None


def _next_due(ledger: Ledger) -> tuple[int | None, int | None, int | None]:
    """The next due times: by steady time, by wall time, and of resources that must be offered again."""
    if ledger.has_resource_lock:
        ledger.gauges.save()
    return ledger.rows(ledger.sql.next_due)[0]  # type: ignore[no-any-return]

"""What happens with time: delayed jobs fall due, and jobs that waited too long expire."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from daybreak.core.model import State
from daybreak.stores.sqlite import gauge_rows, job_moves, resource_queue
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import STEADY, WALL
from daybreak.stores.sqlite.statements import sql


class Next(NamedTuple):
    """When the next job falls due by steady and by wall time, and when the waiters of a resource are checked next."""

    steady: int | None
    wall: int | None
    look: int | None


def coming(ledger: Ledger) -> Next:
    gauge_rows.write(ledger)
    return Next(*(ledger.execute(sql.next_due).fetchone() or (None, None, None)))


def promote(ledger: Ledger, limit: int, coming_next: Next | None = None) -> int:
    """Queue the jobs that are due, up to a limit, so that a million at once do not become one giant transaction."""
    steady, wall, look = coming_next or coming(ledger)
    if look is not None and look <= ledger.steady:
        resource_queue.offer_due_resources(ledger)
    due: list[int] = []
    if steady is not None and steady <= ledger.steady:
        due += [seq for (seq,) in ledger.execute(sql.due_jobs, (STEADY, ledger.steady, limit))]
    if wall is not None and wall <= ledger.wall:
        due += [seq for (seq,) in ledger.execute(sql.due_jobs, (WALL, ledger.wall, limit - len(due)))]
    for seq in due:
        row = job_moves.load(ledger, seq)
        assert row is not None
        job_moves.leave(ledger, row)
        row.state, row.clock, row.due = State.QUEUED, None, None
        job_moves.record(ledger, row, "due", "", state=State.QUEUED)
        job_moves.enter(ledger, row)
    return len(due)


def expire(ledger: Ledger, limit: int) -> int:
    overdue = ledger.rows(sql.overdue_jobs, (ledger.steady, limit))
    for (seq,) in overdue:
        row = job_moves.load(ledger, seq)
        assert row is not None
        job_moves.expire(ledger, row)
    return len(overdue)


def next_in(ledger: Ledger, coming_next: Next | None = None) -> timedelta | None:
    steady, wall, look = coming_next or coming(ledger)
    hands = ((steady, ledger.steady), (wall, ledger.wall), (look, ledger.steady))
    delays = [due - hand for due, hand in hands if due is not None]
    return timedelta(microseconds=max(0, min(delays))) if delays else None

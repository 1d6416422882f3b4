"""What happens with time: scheduled jobs fall due, resources become free, jobs that waited too long expire."""

from __future__ import annotations

from datetime import timedelta

from daybreak.core.model import FINAL, State
from daybreak.store.protocol import Advanced
from daybreak.stores.kernel import flights, landings, moves, resource_queue
from daybreak.stores.kernel.port import NextDue
from daybreak.stores.kernel.row import STEADY, WALL
from daybreak.stores.kernel.transaction import Transaction


def advance(tx: Transaction, limit: int) -> Advanced:
    """Apply what time alone decides, up to a limit."""
    expired = expire(tx, limit)
    due = promote(tx, limit)
    resource_queue.offer_freed(tx)
    wait = next_in(tx)
    return Advanced(due=due, expired=expired, next_in=wait, again=limit in (due, expired) or _is_landing(tx))


def promote(tx: Transaction, limit: int) -> int:
    """Queue the jobs that are due, up to a limit, so that a million at once do not become one giant transaction."""
    steady, wall, look, landing = _next_due(tx)
    if landing:
        landings.land_due(tx, limit)
    if look is not None and look <= tx.steady:
        resource_queue.offer_due_resources(tx)
        tx.write()
    due: list[int] = []
    if steady is not None and steady <= tx.steady:
        due += tx.due(STEADY, tx.steady, limit)
    if wall is not None and wall <= tx.wall:
        due += tx.due(WALL, tx.wall, limit - len(due))
    rows = flights.free(tx, tx.load(due).values())
    for row in rows:
        row.clock = row.due = None
        moves.settle_in(tx, row)
        tx.record(row, "due", "", state=row.state)
        landings.join(tx, row)
    return len(rows)


def expire(tx: Transaction, limit: int) -> int:
    """Fail the waiting jobs that have expired, up to a limit."""
    tx.write()
    expired = 0
    for row in flights.free(tx, tx.load(tx.overdue(limit)).values()):
        # It may have started or ended while this transaction waited for its lock.
        if moves.is_overdue(tx, row) and row.state is not State.RUNNING and row.state not in FINAL:
            moves.expire(tx, row)
            expired += 1
    return expired


def next_in(tx: Transaction) -> timedelta | None:
    """How long until something happens by itself; None if nothing is planned."""
    steady, wall, look, landing = _next_due(tx)
    if landing:
        return timedelta()
    times = ((steady, tx.steady), (wall, tx.wall), (look, tx.steady))
    delays = [due - now for due, now in times if due is not None]
    return timedelta(microseconds=max(0, min(delays))) if delays else None


def _is_landing(tx: Transaction) -> bool:
    return _next_due(tx).landing


def _next_due(tx: Transaction) -> NextDue:
    tx.write()
    tx.gauges.save()
    return tx.next_due()

"""Purge: delete what has been kept long enough, a bounded chunk at a time."""

from __future__ import annotations

from daybreak.core.model import State
from daybreak.core.units import span
from daybreak.store.protocol import Purge, Purged
from daybreak.stores.kernel import landings, moves
from daybreak.stores.kernel.transaction import Transaction


def purge(tx: Transaction, request: Purge) -> Purged:
    """Delete one chunk of jobs, events and keys."""
    keys_for = span(request.keys_for)
    moved = [_drop_moved(tx, tx.clean_id(job), revision, keys_for) for job, revision in request.moved]
    tx.write()
    old = tx.stale_jobs(request.limit)
    rows = tx.load(old)
    if results := [row.result_of for row in rows.values() if row.result_of is not None]:
        tx.flights.load_entries(results)
    for row in rows.values():
        moves.drop(tx, row, keys_for=keys_for)
    tx.write()
    events, more = tx.purge_feed(tx.steady - span(request.events_for), request.limit)
    keys = tx.purge_keys(request.limit)
    lapsed = landings.drop_lapsed(tx, request.limit)
    again = more or request.limit in (len(old), lapsed)
    return Purged(jobs=len(old), events=events, keys=keys, moved=moved, again=again)


def _drop_moved(tx: Transaction, job: str, revision: int, keys_for: int) -> bool:
    """Delete a job that another store has adopted, if it has not changed since."""
    row = tx.load_id(job)
    if row is None or row.state is State.RUNNING or row.n != revision:
        return False
    moves.drop(tx, row, keys_for=keys_for, lives_on=True)
    return True

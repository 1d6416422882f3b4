"""Purge: delete what has been kept long enough, a bounded chunk at a time."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from daybreak.core.model import State
from daybreak.core.units import span
from daybreak.store.protocol import Purge, Purged
from daybreak.stores.sqlite import job_moves
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.statements import sql


def purge(ledger: Ledger, request: Purge) -> Purged:
    keys_for = span(request.keys_for)
    moved = [_moved(ledger, job, revision, keys_for) for job, revision in request.moved]
    old = [seq for (seq,) in ledger.execute(sql.stale_jobs, (ledger.steady, request.limit))]
    for seq in old:
        row = job_moves.load(ledger, seq)
        assert row is not None
        job_moves.drop(ledger, row, keys_for=keys_for)
    stale = _stale_feed(ledger, ledger.steady - span(request.events_for), request.limit)
    if stale:
        ledger.execute(sql.purge_feed, (stale[-1][0],))
        ledger.execute(sql.empty_feed, (stale[-1][0],))
    ledger.execute(sql.purge_keys, (ledger.steady, request.limit))
    keys = ledger.db.changes()
    # Stored so that the store's time does not go back over a boot, whatever the wall clock says then.
    ledger.execute(sql.set_meta, ("steady", ledger.steady))
    _give_back(ledger)
    return Purged(
        jobs=len(old),
        events=sum(lines.count(b"\n") + 1 for _, _, lines in stale),
        keys=keys,
        moved=moved,
        again=request.limit in (len(old), len(stale)),
    )


def _stale_feed(ledger: Ledger, before: int, limit: int) -> list[Any]:
    """The oldest rows up to the first newer one, in the order of commits, so that a clock that was set back leaves no
    gap."""
    return list(takewhile(lambda row: row[1] <= before, ledger.execute(sql.oldest_feed, (limit,))))


def _give_back(ledger: Ledger) -> None:
    """Return free pages to the disk, a few at a time, if there are many."""
    free, total = ledger.db.pragma("freelist_count"), ledger.db.pragma("page_count")
    if free > 1000 and free > total // 4:
        ledger.rows("PRAGMA incremental_vacuum(1000)")


def _moved(ledger: Ledger, job: str, revision: int, keys_for: int) -> bool:
    row = job_moves.load_id(ledger, job)
    if row is None or row.state is State.RUNNING or row.n != revision:
        return False
    job_moves.drop(ledger, row, keys_for=keys_for, lives_on=True)
    return True

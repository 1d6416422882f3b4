"""Purge: delete what has been kept long enough, a bounded number at a time."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from daybreak.core.model import FINAL, State
from daybreak.core.units import span
from daybreak.store.protocol import Purge, Purged
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints
from daybreak.stores.postgres.ledger import Ledger


def purge(ledger: Ledger, request: Purge) -> Purged:
    sql = ledger.sql
    moved = [_drop_moved(ledger, job, revision, span(request.keys_for)) for job, revision in request.moved]
    old = [seq for (seq,) in ledger.rows(sql.stale_jobs, (ledger.steady, request.limit))]
    if old:
        ledger.locked.update(dict.fromkeys(old, State.COMPLETED))
        for row in job_moves.load_all(ledger, old).values():
            assert row.state in FINAL
            job_moves.drop(ledger, row, keys_for=span(request.keys_for))
    stale = _stale_feed(ledger, ledger.steady - span(request.events_for), request.limit)
    if stale:
        # Note how far the feed was purged: a follower that has not read that far has missed events.
        for name, latest in (("purged_xid", max(row[2] for row in stale)), ("purged_pos", stale[-1][0])):
            ledger.run(sql.raise_meta, (name, str(latest)))
        ledger.run(sql.purge_feed, (Bigints([pos for pos, *_ in stale]),))
    keys = ledger.run(sql.purge_keys, (ledger.steady, ledger.steady, request.limit))
    return Purged(
        jobs=len(old),
        events=sum(count for *_, count in stale),
        keys=keys,
        moved=moved,
        again=request.limit in (len(old), len(stale)),
    )


def _stale_feed(ledger: Ledger, before: int, limit: int) -> list[Any]:
    """The oldest rows up to the first younger one; in their order, so that a clock that was set back leaves no gap."""
    return list(takewhile(lambda row: row[1] <= before, ledger.rows(ledger.sql.oldest_feed, (limit,))))


def _drop_moved(ledger: Ledger, job: str, revision: int, keys_for: int) -> bool:
    row = job_moves.load_id(ledger, job)
    if row is None or row.state is State.RUNNING or row.n != revision:
        return False
    job_moves.drop(ledger, row, keys_for=keys_for, lives_on=True)
    return True

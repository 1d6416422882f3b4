"""Purge: what has been kept long enough goes, a bounded chunk at a time."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from daybreak.core.model import FINAL, State
from daybreak.core.units import span
from daybreak.store.protocol import Purge, Purged
from daybreak.stores.postgres import job_moves
from daybreak.stores.postgres.arrays import Bigints
from daybreak.stores.postgres.ledger import Ledger


def purge(ledger: Ledger, wanted: Purge) -> Purged:
    sql = ledger.sql
    moved = [_moved(ledger, job, revision, span(wanted.keys_for)) for job, revision in wanted.moved]
    old = [seq for (seq,) in ledger.rows(sql.stale_jobs, (ledger.steady, wanted.limit))]
    if old:
        ledger.locked.update(dict.fromkeys(old, State.COMPLETED))
        for row in job_moves.load_all(ledger, old).values():
            assert row.state in FINAL
            job_moves.drop(ledger, row, keys_for=span(wanted.keys_for))
    stale = _stale_feed(ledger, ledger.steady - span(wanted.events_for), wanted.limit)
    if stale:
        # What was purged: a follower who has not seen the latest of it has missed something.
        for name, latest in (("purged_xid", max(row[2] for row in stale)), ("purged_pos", stale[-1][0])):
            ledger.run(sql.raise_meta, (name, str(latest)))
        ledger.run(sql.purge_feed, (Bigints([pos for pos, *_ in stale]),))
    keys = ledger.run(sql.purge_keys, (ledger.steady, ledger.steady, wanted.limit))
    return Purged(
        jobs=len(old),
        events=sum(count for *_, count in stale),
        keys=keys,
        moved=moved,
        again=wanted.limit in (len(old), len(stale)),
    )


def _stale_feed(ledger: Ledger, before: int, limit: int) -> list[Any]:
    """The oldest rows, up to the first that is younger; by their order, so a clock set back tears no hole."""
    return list(takewhile(lambda row: row[1] <= before, ledger.rows(ledger.sql.oldest_feed, (limit,))))


def _moved(ledger: Ledger, job: str, revision: int, keys_for: int) -> bool:
    row = job_moves.load_id(ledger, job)
    if row is None or row.state is State.RUNNING or row.n != revision:
        return False
    job_moves.drop(ledger, row, keys_for=keys_for, lives_on=True)
    return True

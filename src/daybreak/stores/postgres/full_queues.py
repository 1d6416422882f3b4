"""Tells once that a queue is full."""

from __future__ import annotations

from daybreak.core.events import record_event
from daybreak.core.model import JobSpec
from daybreak.core.queue_marks import full_mark
from daybreak.stores.postgres.ledger import Ledger


def tell_full(ledger: Ledger, spec: JobSpec) -> None:
    """Tell that the queue of this job is full, unless that was told since it last had room. The lock of the queue's
    limits, which every bounded insert takes, lets no two transactions do so at once."""
    put, sql = full_mark(spec.queue, spec.by), ledger.sql
    if ledger.value(sql.get_record, (put.kind, put.name)) is None:
        ledger.publish(record_event(put, ledger.at))
        ledger.run(sql.put_record, (put.kind, put.name, ledger.next_revision(), put.value))

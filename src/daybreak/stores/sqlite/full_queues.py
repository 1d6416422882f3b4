"""Tells once that a queue is full."""

from __future__ import annotations

from daybreak.core.events import record_event
from daybreak.core.model import JobSpec
from daybreak.core.queue_marks import full_mark
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.statements import sql


def tell_full(ledger: Ledger, spec: JobSpec) -> None:
    """Tell that the queue of this job is full, unless that was told since it last had room."""
    put = full_mark(spec.queue, spec.by)
    if ledger.execute(sql.get_record, (put.kind, put.name)).fetchone() is None:
        revision = (ledger.value(sql.get_meta, ("revision",)) or 0) + 1
        ledger.execute(sql.set_meta, ("revision", revision))
        ledger.execute(sql.put_record, (put.kind, put.name, revision, put.value))
        ledger.publish(record_event(put, ledger.at))

"""Amend: what people change, guarded by the job's state."""

from __future__ import annotations

from typing import Literal

from daybreak.core.model import FINAL, WAITING, State
from daybreak.core.units import clean
from daybreak.store.protocol import SCANNED_PER_CHUNK, Amend, Amended, Amendment, worker_topic
from daybreak.stores.sqlite import gauge_rows, job_moves, read
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.rows import Row
from daybreak.stores.sqlite.statements import sql

Answer = Literal["done", "requested", "refused", "missing"]


def amend(ledger: Ledger, wanted: Amend) -> Amended:
    return Amended([_amend_id(ledger, job, wanted) for job in wanted.jobs])


def amend_chunk(ledger: Ledger, wanted: Amend, seqs: list[int], cursor: str | None) -> Amended:
    """Change what was found, if it still matches: between the look and the write others may have been at it."""
    assert wanted.filter is not None
    rows = [
        row for seq in seqs if (row := job_moves.load(ledger, seq)) is not None and read.matches(row, wanted.filter)
    ]
    answers = [_amend(ledger, row, wanted) for row in rows]
    return Amended([a for a in answers if a.verdict in ("done", "requested")], cursor)


def find_chunk(ledger: Ledger, wanted: Amend) -> tuple[list[int], str | None]:
    """Which jobs the next chunk means. Looked for by the reader, so that no writer waits for a long search."""
    assert wanted.filter is not None
    # Newest first and downwards: what arrives meanwhile is not meant, or a bulk change under load might never end.
    before = read.parse_cursor(wanted.cursor, 1) if wanted.cursor else read.NEWEST
    chunk: list[int] = []
    seq = 0
    for scanned, (seq,) in enumerate(read.newest_first(ledger, wanted.filter, before), 1):
        row = job_moves.load(ledger, seq)
        if row is not None and read.matches(row, wanted.filter):
            chunk.append(seq)
        if len(chunk) == wanted.limit or scanned == SCANNED_PER_CHUNK:
            return chunk, str(seq)
    return chunk, None


def _amend_id(ledger: Ledger, job: str, wanted: Amend) -> Amendment:
    row = job_moves.load_id(ledger, clean(job))
    return _amend(ledger, row, wanted) if row else Amendment(job, "missing")


def _amend(ledger: Ledger, row: Row, wanted: Amend) -> Amendment:
    return Amendment(row.id, _ACTIONS[wanted.action](ledger, row, wanted), row.state)


def _cancel(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state in FINAL:
        return "refused"
    if row.state is State.RUNNING:
        if row.cancelling is None:
            row.cancelling = wanted.by
            job_moves.tell(ledger, row, "cancel_requested", wanted.by, note=wanted.note)
            _ask(ledger, row)
        return "requested"
    job_moves.finish(ledger, row, State.CANCELLED, by=wanted.by, note=wanted.note)
    return "done"


def _suspend(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state in FINAL or row.state is State.SUSPENDED:
        return "refused"
    if row.state is State.RUNNING:
        if not row.suspending:
            row.suspending = True
            job_moves.tell(ledger, row, "suspend_requested", wanted.by, note=wanted.note)
            _ask(ledger, row)
        return "requested"
    gauge_rows.wait_no_more(ledger, row)
    job_moves.leave(ledger, row)
    row.state, row.carry.note = State.SUSPENDED, wanted.note
    job_moves.tell(ledger, row, "suspended", wanted.by, state=State.SUSPENDED, note=wanted.note)
    job_moves.enter(ledger, row)
    return "done"


def _resume(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state is State.RUNNING and row.suspending:
        row.suspending = False
        job_moves.tell(ledger, row, "resumed", wanted.by)
        _ask(ledger, row)
        return "done"
    if row.state is not State.SUSPENDED:
        return "refused"
    job_moves.leave(ledger, row)
    row.carry.note = ""
    if job_moves.is_early(ledger, row):
        row.state = State.SCHEDULED
    else:
        row.state, row.clock, row.due = job_moves.first_state(ledger, row), None, None
    job_moves.tell(ledger, row, "resumed", wanted.by, state=row.state, run_at=job_moves.due_at(row))
    job_moves.enter(ledger, row)
    return "done"


def _ask(ledger: Ledger, row: Row) -> None:
    ledger.execute(sql.ask_lease, (row.cancelling, row.suspending, row.n, row.history, row.seq))
    ledger.wake(worker_topic(row.worker or ""))


def _retry(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state not in FINAL or row.spec.holder is not None:  # a holder has gone on
        return "refused"
    if row.uniq is not None:
        seq = ledger.value(sql.holder_of, (row.uniq,))
        if seq is not None and not _gives_up_its_name(ledger, seq, row):
            return "refused"
        ledger.execute(sql.insert_unique, (row.uniq, row.seq))
    job_moves.leave(ledger, row)
    row.state, row.reason, row.carry.note = State.QUEUED, None, ""
    row.attempt = row.carry.lost = row.carry.timeouts = 0
    row.carry.blocked_since = None
    row.finished = row.purge_at = row.result = None
    job_moves.put_in_place(ledger, row)
    job_moves.tell(ledger, row, "retried", wanted.by, state=State.QUEUED, attempt=0, note=wanted.note)
    job_moves.enter(ledger, row)
    return "done"


def _gives_up_its_name(ledger: Ledger, seq: int, row: Row) -> bool:
    holder = job_moves.load(ledger, seq)
    return row.spec.unique_while == "waiting" and holder is not None and holder.state is State.RUNNING


def _remove(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state not in FINAL:
        return "refused"
    job_moves.tell(ledger, row, "removed", wanted.by, note=wanted.note)
    job_moves.drop(ledger, row, keys_for=None)
    return "done"


def _rerank(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state not in WAITING:
        return "refused"
    job_moves.rerank(ledger, row, wanted.priority, by=wanted.by)
    return "done"


_ACTIONS = {
    "cancel": _cancel,
    "suspend": _suspend,
    "resume": _resume,
    "retry": _retry,
    "remove": _remove,
    "rerank": _rerank,
}

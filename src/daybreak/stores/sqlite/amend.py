"""Amend: changes that people make to jobs; the job's state decides whether they are allowed."""

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


def amend(ledger: Ledger, request: Amend) -> Amended:
    return Amended([_amend_id(ledger, job, request) for job in request.jobs])


def amend_chunk(ledger: Ledger, request: Amend, seqs: list[int], cursor: str | None) -> Amended:
    """Change the jobs that were found, if they still match: others may have changed them since the search."""
    assert request.filter is not None
    rows = [
        row for seq in seqs if (row := job_moves.load(ledger, seq)) is not None and read.matches(row, request.filter)
    ]
    answers = [_amend(ledger, row, request) for row in rows]
    return Amended([a for a in answers if a.verdict in ("done", "requested")], cursor)


def find_chunk(ledger: Ledger, request: Amend) -> tuple[list[int], str | None]:
    """Find the jobs of the next chunk. The reader does this, so that no writer waits for a long search."""
    assert request.filter is not None
    # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
    before = read.parse_cursor(request.cursor, 1) if request.cursor else read.NEWEST
    chunk: list[int] = []
    seq = 0
    for scanned, (seq,) in enumerate(read.newest_first(ledger, request.filter, before), 1):
        row = job_moves.load(ledger, seq)
        if row is not None and read.matches(row, request.filter):
            chunk.append(seq)
        if len(chunk) == request.limit or scanned == SCANNED_PER_CHUNK:
            return chunk, str(seq)
    return chunk, None


def _amend_id(ledger: Ledger, job: str, request: Amend) -> Amendment:
    row = job_moves.load_id(ledger, clean(job))
    return _amend(ledger, row, request) if row else Amendment(job, "missing")


def _amend(ledger: Ledger, row: Row, request: Amend) -> Amendment:
    return Amendment(row.id, _ACTIONS[request.action](ledger, row, request), row.state)


def _cancel(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state in FINAL:
        return "refused"
    if row.state is State.RUNNING:
        if row.cancelling is None:
            row.cancelling = request.by
            job_moves.record(ledger, row, "cancel_requested", request.by, note=request.note)
            _write_lease_request(ledger, row)
        return "requested"
    job_moves.finish(ledger, row, State.CANCELLED, by=request.by, note=request.note)
    return "done"


def _suspend(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state in FINAL or row.state is State.SUSPENDED:
        return "refused"
    if row.state is State.RUNNING:
        if not row.suspending:
            row.suspending = True
            job_moves.record(ledger, row, "suspend_requested", request.by, note=request.note)
            _write_lease_request(ledger, row)
        return "requested"
    gauge_rows.release_offers(ledger, row)
    job_moves.leave(ledger, row)
    row.state, row.carry.note = State.SUSPENDED, request.note
    job_moves.record(ledger, row, "suspended", request.by, state=State.SUSPENDED, note=request.note)
    job_moves.enter(ledger, row)
    return "done"


def _resume(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state is State.RUNNING and row.suspending:
        row.suspending = False
        job_moves.record(ledger, row, "resumed", request.by)
        _write_lease_request(ledger, row)
        return "done"
    if row.state is not State.SUSPENDED:
        return "refused"
    job_moves.leave(ledger, row)
    row.carry.note = ""
    if job_moves.is_early(ledger, row):
        row.state = State.SCHEDULED
    else:
        row.state, row.clock, row.due = job_moves.first_state(ledger, row), None, None
    job_moves.record(ledger, row, "resumed", request.by, state=row.state, run_at=job_moves.due_at(row))
    job_moves.enter(ledger, row)
    return "done"


def _write_lease_request(ledger: Ledger, row: Row) -> None:
    ledger.execute(sql.request_lease_end, (row.cancelling, row.suspending, row.n, row.history, row.seq))
    ledger.wake(worker_topic(row.worker or ""))


def _retry(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state not in FINAL or row.spec.holder is not None:  # its holder no longer waits for it
        return "refused"
    if row.uniq is not None:
        seq = ledger.value(sql.holder_of, (row.uniq,))
        if seq is not None and not _may_take_name(ledger, seq, row):
            return "refused"
        ledger.execute(sql.insert_unique, (row.uniq, row.seq))
    job_moves.leave(ledger, row)
    row.state, row.reason, row.carry.note = State.QUEUED, None, ""
    row.attempt = row.carry.lost = row.carry.timeouts = 0
    row.carry.blocked_since = None
    row.finished = row.purge_at = row.result = None
    job_moves.update_rank(ledger, row)
    job_moves.record(ledger, row, "retried", request.by, state=State.QUEUED, attempt=0, note=request.note)
    job_moves.enter(ledger, row)
    return "done"


def _may_take_name(ledger: Ledger, seq: int, row: Row) -> bool:
    holder = job_moves.load(ledger, seq)
    return row.spec.unique_while == "waiting" and holder is not None and holder.state is State.RUNNING


def _remove(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state not in FINAL:
        return "refused"
    job_moves.record(ledger, row, "removed", request.by, note=request.note)
    job_moves.drop(ledger, row, keys_for=None)
    return "done"


def _start(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state is not State.SCHEDULED:
        return "refused"
    job_moves.leave(ledger, row)
    row.state, row.clock, row.due = job_moves.first_state(ledger, row), None, None
    job_moves.record(ledger, row, "due", request.by, state=row.state, note=request.note)
    job_moves.enter(ledger, row)
    return "done"


def _rerank(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state not in WAITING:
        return "refused"
    job_moves.rerank(ledger, row, request.priority, by=request.by)
    return "done"


_ACTIONS = {
    "cancel": _cancel,
    "suspend": _suspend,
    "resume": _resume,
    "retry": _retry,
    "remove": _remove,
    "rerank": _rerank,
    "start": _start,
}

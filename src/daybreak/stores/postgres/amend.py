"""Amend: changes that people make to jobs; the job's state decides whether they are allowed."""

from __future__ import annotations

from typing import Literal

from daybreak.core.model import FINAL, WAITING, State
from daybreak.core.units import clean
from daybreak.store.protocol import SCANNED_PER_CHUNK, Amend, Amended, Amendment, worker_topic
from daybreak.stores.postgres import job_moves, read
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.insert import NAME_LOCKS
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, text_bytes

Answer = Literal["done", "requested", "refused", "missing"]


def amend(ledger: Ledger, request: Amend) -> Amended:
    jobs = [clean(job) for job in request.jobs]
    seqs = dict(ledger.rows(ledger.sql.seqs_of_ids, (Texts(jobs),)))
    rows = _load(ledger, request, list(seqs.values()))
    amendments = []
    for job_id, job in zip(request.jobs, jobs, strict=True):
        row = rows.get(seqs.get(job, 0))
        amendments.append(Amendment(job_id, "missing") if row is None else _amend(ledger, row, request, rows))
    return Amended(amendments)


def amend_chunk(ledger: Ledger, request: Amend, seqs: list[int], cursor: str | None) -> Amended:
    """Change the jobs that were found, if they still match: others may have changed them since the search."""
    assert request.filter is not None
    rows = _load(ledger, request, seqs)
    found = [row for seq in seqs if (row := rows.get(seq)) is not None and read.matches(row, request.filter)]
    amendments = [_amend(ledger, row, request, rows) for row in found]
    return Amended([a for a in amendments if a.verdict in ("done", "requested")], cursor)


def find_chunk(ledger: Ledger, request: Amend) -> tuple[list[int], str | None]:
    """Find the jobs of the next chunk. This happens before the write transaction, which then is short."""
    assert request.filter is not None
    # Newest first: jobs that arrive meanwhile are not included, else a bulk change under load might never end.
    before = read.parse_cursor(request.cursor, 1)[0] if request.cursor else read.NEWEST
    chunk: list[int] = []
    seqs = read.newest_first(ledger, request.filter, before, SCANNED_PER_CHUNK)
    for batch in read.in_batches(seqs):
        rows = job_moves.read_rows(ledger, batch)
        for seq in batch:
            if seq in rows and read.matches(rows[seq], request.filter):
                chunk.append(seq)
                if len(chunk) == request.limit:
                    return chunk, str(seq)
    return chunk, str(seqs[-1]) if len(seqs) == SCANNED_PER_CHUNK else None


def _load(ledger: Ledger, request: Amend, seqs: list[int]) -> dict[int, Row]:
    rows = job_moves.load_all(ledger, seqs) if seqs else {}
    names = [row.uniq for row in rows.values() if row.uniq is not None] if request.action == "retry" else []
    if names:
        ledger.rows(ledger.sql.lock_names, (NAME_LOCKS, Texts(names)))
    return rows


def _amend(ledger: Ledger, row: Row, request: Amend, rows: dict[int, Row]) -> Amendment:
    verdict = _ACTIONS[request.action](ledger, row, request)
    if request.action == "remove" and verdict == "done":
        del rows[row.seq]
    return Amendment(row.id, verdict, row.state)


def _cancel(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state in FINAL:
        return "refused"
    if row.state is State.RUNNING:
        if row.cancelling is None:
            row.cancelling = request.by.encode()
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
    job_moves.release_offers(ledger, row)
    job_moves.leave(ledger, row)
    row.state, row.note = State.SUSPENDED, text_bytes(request.note)
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
    row.note = None
    if job_moves.is_early(ledger, row):
        row.state = State.SCHEDULED
    else:
        row.clock = row.due = None
        job_moves.make_ready(ledger, row)
    job_moves.record(ledger, row, "resumed", request.by, state=row.state, run_at=row.due_at)
    job_moves.enter(ledger, row)
    return "done"


def _write_lease_request(ledger: Ledger, row: Row) -> None:
    ledger.run(ledger.sql.request_lease_end, (row.cancelling, bool(row.suspending), row.n, row.history, row.seq))
    ledger.wake(worker_topic(row.worker or ""))


def _retry(ledger: Ledger, row: Row, request: Amend) -> Answer:
    if row.state not in FINAL:
        return "refused"
    if row.spec.holder is not None:  # its holder, which would have run it, is gone
        return "refused"
    if row.uniq is not None:
        seq = ledger.value(ledger.sql.holder_of, (row.uniq,))
        if seq is not None and not _gives_up_its_name(ledger, seq, row):
            return "refused"
        ledger.run(ledger.sql.insert_uniques, (Texts([row.uniq]), Bigints([row.seq])))
    job_moves.leave(ledger, row)
    row.state, row.reason, row.note = State.QUEUED, None, None
    row.attempt = row.carry.lost = row.carry.timeouts = 0
    row.carry.since = None
    row.finished = row.purge_at = row.result = None
    job_moves.update_rank(ledger, row)
    job_moves.record(ledger, row, "retried", request.by, state=State.QUEUED, attempt=0, note=request.note)
    job_moves.enter(ledger, row)
    return "done"


def _gives_up_its_name(ledger: Ledger, seq: int, row: Row) -> bool:
    if row.spec.unique_while != "waiting":
        return False
    holder = job_moves.load(ledger, seq)
    return holder is not None and holder.state is State.RUNNING


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
    row.clock = row.due = None
    job_moves.make_ready(ledger, row)
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

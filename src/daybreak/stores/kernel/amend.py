"""Amend: changes that people make to jobs; the job's state decides whether they are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from daybreak.core.model import FINAL, WAITING, State
from daybreak.store.protocol import Amend, Amended, Amendment, worker_topic
from daybreak.stores.kernel import flights, landings, moves
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.transaction import Transaction

Answer = Literal["done", "requested", "refused", "missing"]


def amend(tx: Transaction, request: Amend) -> Amended:
    """Change the jobs with the ids of the request."""
    jobs = [tx.clean_id(job) for job in request.jobs]
    seqs = tx.seqs_of(jobs)
    rows = _load(tx, request, seqs.values())
    amendments = []
    for asked, job in zip(request.jobs, jobs, strict=True):
        row = rows.get(seqs.get(job, 0))
        amendments.append(Amendment(asked, "missing") if row is None else _amend(tx, row, request, rows))
    return Amended(amendments)


def amend_chunk(tx: Transaction, request: Amend, seqs: Iterable[int], cursor: str | None) -> Amended:
    """Change the jobs that were found, if they still match: others may have changed them since the search."""
    assert request.filter is not None
    rows = _load(tx, request, seqs)
    found = [row for row in rows.values() if row.matches(request.filter)]
    amendments = [_amend(tx, row, request, rows) for row in found]
    return Amended([a for a in amendments if a.verdict in ("done", "requested")], cursor)


def _load(tx: Transaction, request: Amend, seqs: Iterable[int]) -> dict[int, Row]:
    rows = tx.load(seqs)
    if request.action == "retry" and (names := [row.unique for row in rows.values() if row.unique is not None]):
        tx.lock_names("unique", names)
    flights.lock(tx, rows.values())  # after the unique names, as an insert does: otherwise the two could deadlock
    return rows


def _amend(tx: Transaction, row: Row, request: Amend, rows: dict[int, Row]) -> Amendment:
    verdict = _ACTIONS[request.action](tx, row, request)
    if request.action == "remove" and verdict == "done":
        del rows[row.seq]
    return Amendment(row.id, verdict, row.state)


def _cancel(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state in FINAL:
        return "refused"
    if row.state is State.RUNNING and not row.detached:
        if row.cancelling is None:
            row.cancelling = request.by
            _ask_holder(tx, row, "cancel_requested", request)
        return "requested"
    moves.finish(tx, row, State.CANCELLED, by=request.by, note=request.note)
    return "done"


def _suspend(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state in FINAL or row.state is State.SUSPENDED:
        return "refused"
    if row.state is State.RUNNING:
        if not row.suspending:
            row.suspending = True
            _ask_holder(tx, row, "suspend_requested", request)
        return "requested"
    moves.release_offers(tx, row)
    row.state, row.cause, row.note = State.SUSPENDED, None, request.note
    tx.record(row, "suspended", request.by, state=State.SUSPENDED, note=request.note)
    tx.change(row)
    flights.leave(tx, row)
    return "done"


def _ask_holder(tx: Transaction, row: Row, kind: str, request: Amend) -> None:
    """Ask the worker of a running job to stop; it learns of it with the reply to its next heartbeat."""
    tx.record(row, kind, request.by, note=request.note)
    tx.wake(worker_topic(row.worker or ""))
    tx.change(row)


def _resume(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state is State.RUNNING and row.suspending:
        row.suspending = False
        tx.record(row, "resumed", request.by)
        tx.change(row)
        return "done"
    if row.state is not State.SUSPENDED:
        return "refused"
    row.note = ""
    moves.settle_in(tx, row)
    tx.record(row, "resumed", request.by, state=row.state, run_at=row.due_at)
    landings.join(tx, row)
    return "done"


def _retry(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state not in FINAL or row.spec.holder is not None:  # its holder no longer waits for it
        return "refused"
    if row.unique is not None:
        if not _is_name_free(tx, row, row.unique):
            return "refused"
        tx.take_name(row.unique, row.seq)
    row.reason, row.note = None, ""
    row.attempt = row.lost = row.timeouts = 0
    row.blocked_since = None
    row.finished = row.purge_at = None
    if (entry := tx.flights.release(row)) is not None and entry.flight is not None:
        landings.forget(tx, entry)  # who lets a completed job run again does not want its result
    moves.update_rank(tx, row)
    moves.settle_in(tx, row)
    tx.record(row, "retried", request.by, state=row.state, attempt=0, note=request.note)
    landings.join(tx, row)
    return "done"


def _is_name_free(tx: Transaction, row: Row, name: str) -> bool:
    """Whether a job may have its unique name again."""
    seq = tx.holders_of([name]).get(name)
    holder = None if seq is None else tx.load_one(seq)
    if holder is None or holder.state in FINAL:
        return True
    return row.spec.unique_while == "waiting" and holder.state is State.RUNNING


def _remove(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state not in FINAL:
        return "refused"
    tx.record(row, "removed", request.by, note=request.note)
    moves.drop(tx, row, keys_for=None)
    return "done"


def _start(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state is not State.SCHEDULED:
        return "refused"
    row.clock = row.due = None
    moves.settle_in(tx, row)
    tx.record(row, "due", request.by, state=row.state, note=request.note)
    landings.join(tx, row)
    return "done"


def _rerank(tx: Transaction, row: Row, request: Amend) -> Answer:
    if row.state not in WAITING:
        return "refused"
    moves.rerank(tx, row, request.priority, by=request.by)
    landings.urge(tx, row, by=request.by)
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

"""Amend: what people change, guarded by the job's state."""

from __future__ import annotations

from typing import Literal

from daybreak.core.model import FINAL, WAITING, State
from daybreak.core.units import clean
from daybreak.store.protocol import SCANNED_PER_CHUNK, Amend, Amended, Amendment, worker_topic
from daybreak.stores.postgres import job_moves, read
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.insert import NAMES
from daybreak.stores.postgres.ledger import Ledger
from daybreak.stores.postgres.rows import Row, text_bytes

Answer = Literal["done", "requested", "refused", "missing"]


def amend(ledger: Ledger, wanted: Amend) -> Amended:
    jobs = [clean(job) for job in wanted.jobs]
    seqs = dict(ledger.rows(ledger.sql.seqs_of_ids, (Texts(jobs),)))
    rows = _load(ledger, wanted, list(seqs.values()))
    answers = []
    for asked, job in zip(wanted.jobs, jobs, strict=True):
        row = rows.get(seqs.get(job, 0))
        answers.append(Amendment(asked, "missing") if row is None else _amend(ledger, row, wanted, rows))
    return Amended(answers)


def amend_chunk(ledger: Ledger, wanted: Amend, seqs: list[int], cursor: str | None) -> Amended:
    """Change what was found, if it still matches: between the look and the write others may have been at it."""
    assert wanted.filter is not None
    rows = _load(ledger, wanted, seqs)
    found = [row for seq in seqs if (row := rows.get(seq)) is not None and read.matches(row, wanted.filter)]
    answers = [_amend(ledger, row, wanted, rows) for row in found]
    return Amended([a for a in answers if a.verdict in ("done", "requested")], cursor)


def find_chunk(ledger: Ledger, wanted: Amend) -> tuple[list[int], str | None]:
    """Which jobs the next chunk means. Looked for beforehand, so that nobody waits for a long search."""
    assert wanted.filter is not None
    # Newest first and downwards: what arrives meanwhile is not meant, or a bulk change under load might never end.
    before = read.parse_cursor(wanted.cursor, 1)[0] if wanted.cursor else read.NEWEST
    chunk: list[int] = []
    seqs = read.newest_first(ledger, wanted.filter, before, SCANNED_PER_CHUNK)
    for batch in read.in_batches(seqs):
        rows = job_moves.look(ledger, batch)
        for seq in batch:
            if seq in rows and read.matches(rows[seq], wanted.filter):
                chunk.append(seq)
                if len(chunk) == wanted.limit:
                    return chunk, str(seq)
    return chunk, str(seqs[-1]) if len(seqs) == SCANNED_PER_CHUNK else None


def _load(ledger: Ledger, wanted: Amend, seqs: list[int]) -> dict[int, Row]:
    rows = job_moves.load_all(ledger, seqs) if seqs else {}
    names = [row.uniq for row in rows.values() if row.uniq is not None] if wanted.action == "retry" else []
    if names:
        ledger.rows(ledger.sql.lock_names, (NAMES, Texts(names)))
    return rows


def _amend(ledger: Ledger, row: Row, wanted: Amend, rows: dict[int, Row]) -> Amendment:
    verdict = _ACTIONS[wanted.action](ledger, row, wanted)
    if wanted.action == "remove" and verdict == "done":
        del rows[row.seq]
    return Amendment(row.id, verdict, row.state)


def _cancel(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state in FINAL:
        return "refused"
    if row.state is State.RUNNING:
        if row.cancelling is None:
            row.cancelling = wanted.by.encode()
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
    job_moves.wait_no_more(ledger, row)
    job_moves.leave(ledger, row)
    row.state, row.note = State.SUSPENDED, text_bytes(wanted.note)
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
    row.note = None
    if job_moves.is_early(ledger, row):
        row.state = State.SCHEDULED
    else:
        row.clock = row.due = None
        job_moves.stand_first(ledger, row)
    job_moves.tell(ledger, row, "resumed", wanted.by, state=row.state, run_at=row.due_at)
    job_moves.enter(ledger, row)
    return "done"


def _ask(ledger: Ledger, row: Row) -> None:
    ledger.run(ledger.sql.ask_lease, (row.cancelling, bool(row.suspending), row.n, row.history, row.seq))
    ledger.wake(worker_topic(row.worker or ""))


def _retry(ledger: Ledger, row: Row, wanted: Amend) -> Answer:
    if row.state not in FINAL:
        return "refused"
    if row.spec.holder is not None:  # whoever wanted to run it has gone on
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
    job_moves.put_in_place(ledger, row)
    job_moves.tell(ledger, row, "retried", wanted.by, state=State.QUEUED, attempt=0, note=wanted.note)
    job_moves.enter(ledger, row)
    return "done"


def _gives_up_its_name(ledger: Ledger, seq: int, row: Row) -> bool:
    if row.spec.unique_while != "waiting":
        return False
    holder = job_moves.load(ledger, seq)
    return holder is not None and holder.state is State.RUNNING


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

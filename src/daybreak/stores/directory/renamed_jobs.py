"""What a person changed by renaming files while the store was closed: the name of the data file decides."""

from __future__ import annotations

import logging

from daybreak.core.model import FINAL, Reason, Settlement, State
from daybreak.store.protocol import Action, Amend
from daybreak.stores.directory.tracked_book import Now, TrackedBook
from daybreak.stores.kernel import moves, resource_queue
from daybreak.stores.kernel.amend import amend
from daybreak.stores.kernel.row import Row
from daybreak.stores.kernel.settle import Settling
from daybreak.stores.kernel.transaction import Transaction

_log = logging.getLogger("daybreak.directory")
BY = "a renamed file"
NOTE = "renamed in the folder"


def apply(book: TrackedBook, seq: int, wanted: State, now: Now) -> None:
    """Bring a job into the state that its files are named after. A final job that waits again is retried, with a new
    budget of attempts. If that is not possible, the job stays as it was, and its files are renamed back."""
    tx = book.begin(now)
    row = tx.load_one(seq)
    assert row is not None
    if not _queue(tx, row):
        _log.warning("job %s stays %s: another job holds its unique name", row.id, row.state.value)
    elif wanted is State.SUSPENDED:
        _amend(tx, row, "suspend")
    elif wanted in FINAL:
        moves.finish(tx, row, wanted, by=BY, reason=Reason.ERROR if wanted is State.FAILED else None, note=NOTE)
    tx.change(row)  # its files are written again in any case
    resource_queue.offer_freed(tx)
    tx.commit()


def _queue(tx: Transaction, row: Row) -> bool:
    if row.state in FINAL:
        return _amend(tx, row, "retry")
    if row.state is State.SUSPENDED:
        _amend(tx, row, "resume")
    if row.state is State.SCHEDULED:
        _amend(tx, row, "start")
    if row.state is State.RUNNING:
        released = Settlement(
            seq=row.seq, job=row.id, fence=row.fence, state=State.QUEUED, attempt=row.attempt, lost=row.lost,
            timeouts=row.timeouts, note=NOTE, by=BY,
        )  # fmt: skip
        Settling(tx).settle([released])
    return True


def _amend(tx: Transaction, row: Row, action: Action) -> bool:
    [answer] = amend(tx, Amend(action=action, by=BY, jobs=(row.id,), note=NOTE)).amendments
    return answer.verdict == "done"

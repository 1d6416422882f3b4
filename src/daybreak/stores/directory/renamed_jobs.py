"""What a person changed by renaming files while the store was closed: the name of the data file decides."""

from __future__ import annotations

import logging

from daybreak.core.model import FINAL, Reason, Settlement, State
from daybreak.store.protocol import Amend
from daybreak.stores.directory.tracked_ledger import TrackedLedger
from daybreak.stores.memory.book import Now
from daybreak.stores.memory.entry import Entry

_log = logging.getLogger("daybreak.directory")
BY = "a renamed file"
NOTE = "renamed in the folder"


def apply(ledger: TrackedLedger, entry: Entry, wanted: State, now: Now) -> None:
    """Bring a job into the state that its files are named after. A final job that waits again is retried, with a new
    budget of attempts. If that is not possible, the job stays as it was, and its files are renamed back."""
    if not _queue(ledger, entry, now):
        _log.warning("job %s stays %s: another job holds its unique name", entry.spec.id, entry.state.value)
        ledger.changed[entry.seq] = entry
        return
    if wanted is State.SUSPENDED:
        ledger.amend(entry, Amend(action="suspend", by=BY, note=NOTE), now)
    elif wanted in FINAL:
        ledger.end(entry, wanted, Reason.ERROR if wanted is State.FAILED else None, now, by=BY, note=NOTE)
    ledger.changed[entry.seq] = entry


def _queue(ledger: TrackedLedger, entry: Entry, now: Now) -> bool:
    if entry.state in FINAL:
        return ledger.amend(entry, Amend(action="retry", by=BY, note=NOTE), now).verdict == "done"
    if entry.state is State.SUSPENDED:
        ledger.amend(entry, Amend(action="resume", by=BY), now)
    if entry.state is State.SCHEDULED:
        ledger.amend(entry, Amend(action="start", by=BY, note=NOTE), now)
    if entry.state is State.RUNNING:
        released = Settlement(
            seq=entry.seq, job=entry.spec.id, fence=entry.fence, state=State.QUEUED, attempt=entry.attempt,
            lost=entry.lost, timeouts=entry.timeouts, note=NOTE, by=BY,
        )  # fmt: skip
        ledger.settle(released, now)
        ledger.settled.clear()
    return True

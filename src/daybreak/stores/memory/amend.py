"""Changes that people make to jobs; the job's state decides whether they are allowed."""

from __future__ import annotations

from daybreak.core.model import FINAL, WAITING, State
from daybreak.store.protocol import Amend, Amendment, worker_topic
from daybreak.stores.memory.book import Book, Now, due_at
from daybreak.stores.memory.entry import Entry


class Amending(Book):
    """One method for each action of `Amend`."""

    __slots__ = ()

    def amend(self, entry: Entry, amend: Amend, now: Now) -> Amendment:
        verdict = getattr(self, f"_amend_{amend.action}")(entry, amend, now)
        return Amendment(entry.spec.id, verdict, entry.state)

    def _amend_cancel(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state in FINAL:
            return "refused"
        if entry.state is State.RUNNING:
            if entry.cancelling is None:
                entry.cancelling = amend.by
                self._record(entry, "cancel_requested", now, amend.by, note=amend.note)
                self.topics.add(worker_topic(entry.worker or ""))
            return "requested"
        self._finish(entry, State.CANCELLED, now, by=amend.by, note=amend.note)
        return "done"

    def _amend_suspend(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state in FINAL or entry.state is State.SUSPENDED:
            return "refused"
        if entry.state is State.RUNNING:
            if not entry.suspending:
                entry.suspending = True
                self._record(entry, "suspend_requested", now, amend.by, note=amend.note)
                self.topics.add(worker_topic(entry.worker or ""))
            return "requested"
        self._release_offers(entry)
        self._exit(entry)
        entry.state, entry.note = State.SUSPENDED, amend.note
        self._record(entry, "suspended", now, amend.by, state=State.SUSPENDED, note=amend.note)
        return "done"

    def _amend_resume(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state is State.RUNNING and entry.suspending:
            entry.suspending = False
            self._record(entry, "resumed", now, amend.by)
            return "done"
        if entry.state is not State.SUSPENDED:
            return "refused"
        entry.note = ""
        if self._is_early(entry, now):
            entry.state = State.SCHEDULED
        else:
            entry.state, entry.due = self._first_state(entry, now), None
        self._enter(entry)
        self._record(entry, "resumed", now, amend.by, state=entry.state, run_at=due_at(entry))
        return "done"

    def _amend_retry(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL or self._holder_of(entry.spec) is not None:
            return "refused"
        if entry.spec.holder is not None:  # its holder no longer waits for it
            return "refused"
        entry.state, entry.reason, entry.note = State.QUEUED, None, ""
        entry.attempt = entry.lost = entry.timeouts = 0
        entry.blocked_since = None
        entry.finished = entry.purge_at = entry.result = None
        self.unfinished[entry.spec.queue] += 1
        if entry.spec.unique is not None:
            self.uniques[entry.spec.unique] = entry
        self._update_rank(entry)
        self._enter(entry)
        self._record(entry, "retried", now, amend.by, state=State.QUEUED, attempt=0, note=amend.note)
        return "done"

    def _amend_remove(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL:
            return "refused"
        self._record(entry, "removed", now, amend.by, note=amend.note)
        self.drop(entry, now, keys_for=None)
        return "done"

    def _amend_start(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state is not State.SCHEDULED:
            return "refused"
        self._exit(entry)
        entry.state, entry.due = self._first_state(entry, now), None
        self._enter(entry)
        self._record(entry, "due", now, amend.by, state=entry.state, note=amend.note)
        return "done"

    def _amend_rerank(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in WAITING:
            return "refused"
        self._rerank(entry, amend.priority, now, by=amend.by)
        return "done"

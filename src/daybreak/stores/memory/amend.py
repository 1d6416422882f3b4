"""What people change, guarded by the job's state."""

from __future__ import annotations

from daybreak.core.model import FINAL, WAITING, State
from daybreak.store.protocol import Amend, Amendment, worker_topic
from daybreak.stores.memory.book import Book, Now, due_at
from daybreak.stores.memory.entry import Entry


class Amending(Book):
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
                self._change(entry, "cancel_requested", now, amend.by, note=amend.note)
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
                self._change(entry, "suspend_requested", now, amend.by, note=amend.note)
                self.topics.add(worker_topic(entry.worker or ""))
            return "requested"
        self._wait_no_more(entry)
        self._exit(entry)
        entry.state, entry.note = State.SUSPENDED, amend.note
        self._change(entry, "suspended", now, amend.by, state=State.SUSPENDED, note=amend.note)
        return "done"

    def _amend_resume(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state is State.RUNNING and entry.suspending:
            entry.suspending = False
            self._change(entry, "resumed", now, amend.by)
            return "done"
        if entry.state is not State.SUSPENDED:
            return "refused"
        entry.note = ""
        if self._is_early(entry, now):
            entry.state = State.SCHEDULED
        else:
            entry.state, entry.due = self._first_state(entry, now), None
        self._enter(entry)
        self._change(entry, "resumed", now, amend.by, state=entry.state, run_at=due_at(entry))
        return "done"

    def _amend_retry(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL or self._holder_of(entry.spec) is not None:
            return "refused"
        if entry.spec.holder is not None:  # whoever wanted to run it has gone on
            return "refused"
        entry.state, entry.reason, entry.note = State.QUEUED, None, ""
        entry.attempt = entry.lost = entry.timeouts = 0
        entry.blocked_since = None
        entry.finished = entry.purge_at = entry.result = None
        self.unfinished[entry.spec.queue] += 1
        if entry.spec.unique is not None:
            self.uniques[entry.spec.unique] = entry
        self._place(entry)
        self._enter(entry)
        self._change(entry, "retried", now, amend.by, state=State.QUEUED, attempt=0, note=amend.note)
        return "done"

    def _amend_remove(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in FINAL:
            return "refused"
        self._change(entry, "removed", now, amend.by, note=amend.note)
        self.drop(entry, now, keys_for=None)
        return "done"

    def _amend_rerank(self, entry: Entry, amend: Amend, now: Now) -> str:
        if entry.state not in WAITING:
            return "refused"
        self._rerank(entry, amend.priority, now, by=amend.by)
        return "done"

"""The reports of a folder as items of a store: it decides which is next, when a failed one is tried again, and how many
are under way. The files are what survives a crash."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

from daybreak.core.model import Done, Failed, Failure, HandedBack, Retry, State
from daybreak.core.units import clean
from daybreak.store.protocol import Verdict
from daybreak.stores.memory import MemoryStore
from pywats_queue.queue.item_store import Held, ItemStore

from .report_folder import COMPLETED, ERROR, MAX_DOUBLINGS, PROCESSING, QUEUED, ReportFolder, wait_left


class ReportQueue:
    """The id of an item is the name of the report without its ending. `has_more`: the folder has reports that were not
    added, because too many wait."""

    def __init__(self, folder: ReportFolder, max_concurrent: int, attempts: int, delay: timedelta) -> None:
        self._folder = folder
        self._attempts = attempts
        self._delay = delay
        cap = delay * 2**MAX_DOUBLINGS
        self._retry = Retry(strategy="exponential", attempts=attempts, delay=delay, cap=cap, jitter=0.0)
        self._lock = threading.RLock()
        self._known: set[str] = set()
        self._items = ItemStore(MemoryStore())
        self._max_concurrent = max_concurrent
        self.has_more = False

    def recover(self) -> None:
        """What an earlier queue left: interrupted uploads are queued again."""
        for name in self._folder.files()[PROCESSING]:
            self._folder.move(name, PROCESSING, QUEUED, ERROR)

    # -- find ----------------------------------------------------------------------------------------------------------

    def scan(self, max_size: int, processing_timeout: timedelta) -> None:
        """Add the reports that are new in the folder, the most urgent first, until `max_size` wait."""
        with self._lock:
            files = self._folder.files()
            self._free_stuck(files[PROCESSING], processing_timeout)
            waiting = files[ERROR] | files[QUEUED]
            for name in self._known - waiting.keys() - self._items.held.keys():
                self._drop(name)
            new = [(self._folder.priority(name), name) for name in waiting if name not in self._known]
            room = max(max_size - len(self._known), 0)
            self.has_more = len(new) > room
            for priority, name in sorted(new)[:room]:
                self._add(name, priority, files[ERROR].get(name))
            for name in files[QUEUED].keys() - files[ERROR].keys():
                self._start_renamed(name)

    def _free_stuck(self, processing: dict[str, float], timeout: timedelta) -> None:
        """Queue a report that somebody else set to processing and left there."""
        before = time.time() - timeout.total_seconds()
        for name, changed in processing.items():
            if name not in self._items.held and changed < before:
                self._folder.move(name, PROCESSING, QUEUED, ERROR)

    def _add(self, name: str, priority: int, failed_at: float | None) -> None:
        """Add a report. One that failed waits from the time in its note or, without a note, from that of its file."""
        info = self._folder.info(name)
        is_error = failed_at is not None
        if failed_at is not None and info.at is None:
            info = info._replace(at=datetime.fromtimestamp(failed_at, UTC), attempts=max(info.attempts, 1))
        if is_error and (info.is_permanent or info.attempts >= self._attempts):
            return  # it stays as it is until somebody renames it to .queued
        added = self._items.add(name, b"{}", priority=priority, max_attempts=self._attempts, retry=self._retry)
        if added is not Verdict.NEW:
            return
        self._known.add(name)
        attempts = min(info.attempts, self._attempts - 1)
        left = wait_left(info, self._delay) if is_error else timedelta()
        if attempts or left:
            held = self._items.take(name)
            if held is not None:
                self._items.end(held, HandedBack(delay=left or None, unused=True), attempts=attempts)

    def _start_renamed(self, name: str) -> None:
        """A failed report that a person renamed to `.queued` does not wait any longer."""
        job = self._items.job(name) if name in self._known else None
        if job is not None and job.state is State.SCHEDULED:
            self._items.amend("start", name)

    def _drop(self, name: str) -> None:
        self._known.discard(name)
        job = self._items.job(name)
        if job is not None:
            self._items.remove(job)

    # -- work ----------------------------------------------------------------------------------------------------------

    def take(self) -> Held | None:
        """The next report, if an upload slot is free."""
        with self._lock:
            is_full = len(self._items.held) >= self._max_concurrent
            return None if is_full else self._items.take(is_marked=True)

    def next_in(self, at_most: timedelta) -> timedelta:
        """When to look again, unless an upload ends before."""
        is_full = len(self._items.held) >= self._max_concurrent
        due = None if is_full else self._items.next_in
        return at_most if due is None else max(min(due, at_most), timedelta(milliseconds=1))

    def begin(self, held: Held) -> bool:
        """Rename the report to `.processing`. False if it is gone."""
        name = held.lease.job
        with self._lock:
            if self._folder.move(name, ERROR, PROCESSING) or self._folder.move(name, QUEUED, PROCESSING):
                return True
            self._items.end(held, Done())
            self._drop(name)
            return False

    def complete(self, held: Held, *, deletes: bool) -> None:
        name = held.lease.job
        with self._lock:
            if not deletes:
                self._folder.move(name, PROCESSING, COMPLETED)
            self._folder.delete(name, PROCESSING)
            self._items.end(held, Done())
            self._drop(name)

    def fail(self, held: Held, error: str, *, is_permanent: bool) -> State:
        """The report is `.error`. Returns FAILED if it is not tried again."""
        name = held.lease.job
        failure = Failure(message=clean(error), verdict="permanent" if is_permanent else "transient")
        with self._lock:
            self._folder.move(name, PROCESSING, ERROR)
            state = self._items.end(held, Failed(failure))
            if state is State.FAILED:
                self._drop(name)
            return state

    def hand_back(self, held: Held) -> None:
        """The upload was interrupted by a stop: the report is queued again, and the attempt does not count."""
        with self._lock:
            self._folder.move(held.lease.job, PROCESSING, QUEUED, ERROR)
            self._items.end(held, HandedBack())

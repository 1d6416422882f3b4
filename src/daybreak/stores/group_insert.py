"""Group commit for blocking inserts. The first thread inserts directly; threads that arrive meanwhile queue up, and one
of them inserts for the whole group: one call, one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import Inserted
from daybreak.system import patience

# Seconds. Where a signal cannot interrupt a wait on a lock, Ctrl-C takes effect after at most this long.
SIGNAL_CHECK_INTERVAL: Final = 0.5


class GroupMember:
    """One call that waits: the leader of its group inserts for it, or it becomes the leader itself."""

    __slots__ = ("answers", "changed", "error", "specs")

    def __init__(self, specs: Sequence[JobSpec]) -> None:
        self.specs = specs
        self.answers: list[Inserted] | None = None
        self.error: BaseException | None = None
        self.changed = threading.Lock()  # released when the call has its answer, or when it becomes the leader
        self.changed.acquire()

    def wait(self, until: float | None = None) -> bool:
        """Wait until `changed` is released. False if that did not happen by `until` (monotonic seconds)."""
        while not self.changed.acquire(timeout=_next_timeout(until)):
            if until is not None and time.monotonic() >= until:
                return False
        return True


def _next_timeout(until: float | None) -> float:
    if until is None:
        return SIGNAL_CHECK_INTERVAL
    return max(min(SIGNAL_CHECK_INTERVAL, until - time.monotonic()), 0.0)


class GroupInsert:
    """Calls `insert` for up to `most` jobs at a time.

    `interrupted` makes the error for members whose leader was interrupted during the call. `late`, if given, makes the
    error for a caller whose patience ended while it waited; its argument says whether the jobs may have been sent.
    Without `late`, callers wait for as long as it takes."""

    def __init__(
        self,
        insert: Callable[[Sequence[JobSpec]], list[Inserted]],
        *,
        most: int,
        interrupted: Callable[[], BaseException],
        late: Callable[[bool], BaseException] | None = None,
    ) -> None:
        self._insert = insert
        self._max_jobs = most
        self._interrupted = interrupted
        self._late = late
        self._lock = threading.Lock()
        self._waiting: list[GroupMember] = []
        self._leader: GroupMember | None = None

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        """Insert these jobs, alone or together with those of other threads."""
        member = GroupMember(specs)
        try:
            with self._lock:
                if self._leader is None:
                    self._leader = member
                else:
                    self._waiting.append(member)
            if self._leader is not member:
                self._wait(member)
            if self._leader is member:
                self._lead(member)
        except BaseException:  # interrupted, perhaps when it had just become the leader
            self._leave(member)
            raise
        if member.error is not None:
            raise member.error
        assert member.answers is not None
        return member.answers

    def _wait(self, member: GroupMember) -> None:
        until = None
        if self._late is not None:
            until = patience.ends_at()
        if member.wait(until) or self._late is None:
            return
        with self._lock:
            if member.changed.acquire(blocking=False):  # answered at the last moment
                return
            was_sent = member not in self._waiting
            if not was_sent:
                self._waiting.remove(member)  # under the lock, else the leader could still take it along
        raise self._late(was_sent)

    def _lead(self, leader: GroupMember) -> None:
        group = [leader, *self._take_waiting(len(leader.specs))]
        try:
            self._insert_group(group)
        finally:
            self._leave(leader)
            for member in group[1:]:
                member.changed.release()

    def _take_waiting(self, jobs: int) -> list[GroupMember]:
        """The members that wait now, as many as fit beside `jobs`."""
        members: list[GroupMember] = []
        with self._lock:
            while self._waiting and jobs + len(self._waiting[0].specs) <= self._max_jobs:
                members.append(self._waiting.pop(0))
                jobs += len(members[-1].specs)
        return members

    def _leave(self, member: GroupMember) -> None:
        """Remove a member; if it was the leader, the next one becomes leader. Safe to repeat."""
        with self._lock:
            if member in self._waiting:
                self._waiting.remove(member)
            elif self._leader is member and self._waiting:
                self._leader = self._waiting.pop(0)
                self._leader.changed.release()
            elif self._leader is member:
                self._leader = None

    def _insert_group(self, group: list[GroupMember]) -> None:
        for member in group:  # so that every member has a result, whatever interrupts this thread
            member.error = self._interrupted()
        try:
            inserted = self._insert([spec for member in group for spec in member.specs])
        except Exception as error:  # noqa: BLE001 - raised again in each member's own thread
            if len(group) > 1 and not isinstance(error, StoreUnavailable):
                for member in group:  # nothing was written, and only one of them may be to blame
                    self._insert_group([member])
                return
            for member in group:
                member.error = error
            return
        start = 0
        for member in group:
            member.answers, member.error = inserted[start : start + len(member.specs)], None
            start += len(member.specs)

"""Inserts of threads that wait. Whoever finds nobody at it asks the store himself; who comes meanwhile is gathered, and
one of those asks for all of them: one question, one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import JobSpec
from daybreak.store.protocol import Inserted
from daybreak.system import patience

GLANCE: Final = 0.5  # seconds; where a wait cannot be interrupted by a signal, Ctrl-C is heard this late


class GroupMember:
    """One call that waits: to be asked for with others, or to ask for them."""

    __slots__ = ("answers", "changed", "specs", "trouble")

    def __init__(self, specs: Sequence[JobSpec]) -> None:
        self.specs = specs
        self.answers: list[Inserted] | None = None
        self.trouble: BaseException | None = None
        self.changed = threading.Lock()  # let go of when it is answered, or when it is its turn to lead
        self.changed.acquire()

    def wait(self, until: float | None = None) -> bool:
        """False if nothing happened until then."""
        while not self.changed.acquire(timeout=_glance(until)):
            if until is not None and time.monotonic() >= until:
                return False
        return True


def _glance(until: float | None) -> float:
    return GLANCE if until is None else max(min(GLANCE, until - time.monotonic()), 0.0)


class GroupInsert:
    """`insert` asks the store for up to `most` jobs together. `interrupted` makes what those are told for whom another
    asked who was interrupted in the midst of it. `late`, if given, makes the error of a caller whose patience ended
    while it waited, told whether its jobs may have been sent; without it, callers wait for as long as it takes."""

    def __init__(
        self,
        insert: Callable[[Sequence[JobSpec]], list[Inserted]],
        *,
        most: int,
        interrupted: Callable[[], BaseException],
        late: Callable[[bool], BaseException] | None = None,
    ) -> None:
        self._insert = insert
        self._most = most
        self._interrupted = interrupted
        self._late = late
        self._lock = threading.Lock()
        self._waiting: list[GroupMember] = []
        self._leader: GroupMember | None = None

    def insert(self, specs: Sequence[JobSpec]) -> list[Inserted]:
        turn = GroupMember(specs)
        try:
            with self._lock:
                if self._leader is None:
                    self._leader = turn
                else:
                    self._waiting.append(turn)
            if self._leader is not turn:
                self._wait(turn)
            if self._leader is turn:
                self._lead(turn)
        except BaseException:  # interrupted, perhaps when it had just become the one to lead
            self._leave(turn)
            raise
        if turn.trouble is not None:
            raise turn.trouble
        assert turn.answers is not None
        return turn.answers

    def _wait(self, turn: GroupMember) -> None:
        if turn.wait(None if self._late is None else patience.ends_at()) or self._late is None:
            return
        with self._lock:
            if turn.changed.acquire(blocking=False):  # in the last moment
                return
            was_sent = turn not in self._waiting
            if not was_sent:
                self._waiting.remove(turn)  # here, or the one who leads could still take it along
        raise self._late(was_sent)

    def _lead(self, turn: GroupMember) -> None:
        group = [turn, *self._others(len(turn.specs))]
        try:
            self._ask(group)
        finally:
            self._leave(turn)
            for other in group[1:]:
                other.changed.release()

    def _others(self, jobs: int) -> list[GroupMember]:
        """Those who came meanwhile, as many as fit."""
        others: list[GroupMember] = []
        with self._lock:
            while self._waiting and jobs + len(self._waiting[0].specs) <= self._most:
                others.append(self._waiting.pop(0))
                jobs += len(others[-1].specs)
        return others

    def _leave(self, turn: GroupMember) -> None:
        """It waits no more, and if it led, the next one does. Leaving twice is fine."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif self._leader is turn and self._waiting:
                self._leader = self._waiting.pop(0)
                self._leader.changed.release()
            elif self._leader is turn:
                self._leader = None

    def _ask(self, group: list[GroupMember]) -> None:
        for turn in group:  # so that nobody is left without an answer, whatever happens
            turn.trouble = self._interrupted()
        try:
            found = self._insert([spec for turn in group for spec in turn.specs])
        except Exception as error:  # noqa: BLE001 - each gets its own
            if len(group) > 1 and not isinstance(error, StoreUnavailable):
                for turn in group:  # one of them may be to blame, and nothing was written
                    self._ask([turn])
                return
            for turn in group:
                turn.trouble = error
            return
        at = 0
        for turn in group:
            turn.answers, turn.trouble = found[at : at + len(turn.specs)], None
            at += len(turn.specs)

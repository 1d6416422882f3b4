"""Lets the suspects of one pool begin, one at a time: finds a child that is free for it, and says so in the lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from daybreak.model import Lease
from daybreak.worker.child import Child
from daybreak.worker.children import Children
from daybreak.worker.keeper import Keeper
from daybreak.worker.trial import Trial

SUSPECTS: Final = 200


class Court:
    """`give_back` takes those that could not begin after all."""

    def __init__(
        self, trial: Trial, children: Children, *, is_async: bool, give_back: Callable[[list[Lease]], None]
    ) -> None:
        self.keeper: Keeper | None = None
        self._trial = trial
        self._children = children
        self._is_async = is_async
        self._give_back = give_back
        self._marking: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._trial) + len(self._marking)

    @property
    def leases(self) -> list[Lease]:
        return self._trial.waiting + list(self._marking.values())

    @property
    def is_full(self) -> bool:
        return len(self._trial) >= SUSPECTS

    def add(self, lease: Lease) -> None:
        self._trial.add(lease)

    def end(self, seq: int) -> None:
        self._trial.end(seq)

    def drop(self, lease: Lease) -> bool:
        """Whether it waited."""
        return self._trial.drop(lease)

    def clear(self) -> list[Lease]:
        """All that have not begun."""
        waiting = [*self._trial.clear(), *self._marking.values()]
        self._marking.clear()
        for lease in waiting:
            self._trial.end(lease.seq)
        return waiting

    def try_next(self) -> None:
        """Let the next suspect begin, if none is on trial: first it is said in its lease, then it runs."""
        if not self._trial.may_begin or self.keeper is None or self._children.closing:
            if not self._marking:
                for one in self._children:
                    one.reserved = False
            return
        child = self._room()
        if child is None or child.held or not child.ready:
            return
        lease = self._trial.next(time.monotonic())
        self._marking[lease.seq] = lease
        self.keeper.mark(lease, lambda held: self._begin(lease, held), alone=True)

    def _room(self) -> Child | None:
        """A child for a suspect alone: of the sync ones one is kept free, the async ones get an extra child."""
        if self._is_async:
            self._children.add_solo()
            return self._children.solo
        regular = self._children.regular
        child = next((one for one in regular if one.reserved), None)
        if child is None and regular:
            child = min(regular, key=lambda one: len(one.held))
            child.reserved = True
            if len(child.held) > 1:
                child.recall()
        return child

    def _begin(self, lease: Lease, held: bool) -> None:
        if self._marking.pop(lease.seq, None) is None:
            return
        child = self._room()
        if held and child is not None and child.is_idle and not self._children.closing:
            child.give([lease], alone=True)
            child.reserved = False
            return
        self._trial.end(lease.seq)
        if held:
            self._give_back([lease])

    def look(self, now: float) -> None:
        """Those that lived through their trial are no longer alone, and the next may begin."""
        for seq in self._trial.survived(now):
            for child in self._children:
                if (held := child.held.get(seq)) is not None and self.keeper is not None:
                    held.alone = False
                    self.keeper.mark(held.lease, lambda _: None, alone=False)
        self.try_next()

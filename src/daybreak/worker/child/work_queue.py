"""Work that a child has received and not yet started."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from daybreak.worker.wire import RunCall, Work

T = TypeVar("T")
Item = Work | RunCall


class WorkQueue:
    """Work in order of priority, and of arrival where priorities are equal. A call is one item, with the priority of
    its first job.

    One thread may add while another removes: every item is removed exactly once."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()

    def add(self, batch: Sequence[Item]) -> None:
        waiting = self._items
        try:
            in_order = waiting[-1].priority <= min(work.priority for work in batch)
        except IndexError:  # empty, or the other thread has just removed the last item
            in_order = True
        if not in_order:
            batch = sorted([*remove_all(waiting), *batch], key=lambda work: work.priority)
        waiting.extend(batch)

    def __len__(self) -> int:
        return len(self._items)

    def pop(self) -> Item | None:
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def clear(self) -> list[tuple[int, int]]:
        """Remove everything and return the jobs, which this child will not start, by seq and fence."""
        return [(work.seq, work.fence) for item in remove_all(self._items) for work in works_of(item)]


def works_of(item: Item) -> list[Work]:
    """The jobs of an item."""
    return item.call if isinstance(item, RunCall) else [item]


def remove_all(items: deque[T]) -> list[T]:
    """Empty a deque that another thread may be changing. Every item is returned to one caller only."""
    removed: list[T] = []
    with contextlib.suppress(IndexError):
        while True:
            removed.append(items.popleft())
    return removed

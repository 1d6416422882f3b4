"""Work that a child has received and not yet started."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TypeVar

from daybreak.worker.wire import Work

T = TypeVar("T")


class WorkQueue:
    """Work in order of priority, and of arrival where priorities are equal.

    One thread may add while another removes: every item is removed exactly once."""

    def __init__(self) -> None:
        self._items: deque[Work] = deque()

    def add(self, batch: list[Work]) -> None:
        waiting = self._items
        try:
            in_order = waiting[-1].priority <= min(work.priority for work in batch)
        except IndexError:  # empty, or the other thread has just removed the last item
            in_order = True
        if not in_order:
            batch = sorted(remove_all(waiting) + batch, key=lambda work: work.priority)
        waiting.extend(batch)

    def __len__(self) -> int:
        return len(self._items)

    def pop(self) -> Work | None:
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def clear(self) -> list[tuple[int, int]]:
        """Remove everything and return the jobs, which this child will not start, by seq and fence."""
        return [(work.seq, work.fence) for work in remove_all(self._items)]


def remove_all(items: deque[T]) -> list[T]:
    """Empty a deque that another thread may be changing. Every item is returned to one caller only."""
    removed: list[T] = []
    with contextlib.suppress(IndexError):
        while True:
            removed.append(items.popleft())
    return removed

"""The errors of the queues.

QueueError
├── QueueFullError
├── QueueCorruptedError
├── QueueCriticalError
├── DuplicateItemError      (also a ValueError)
├── ItemNotFoundError       (also a KeyError)
└── ItemTakenError
"""

from __future__ import annotations


class QueueError(Exception):
    """Something is wrong with a queue or with one of its items."""


class QueueFullError(QueueError):
    """The queue has as many unfinished items as `max_size` allows."""


class QueueCorruptedError(QueueError):
    """What is stored of a queue cannot be read."""


class QueueCriticalError(QueueError):
    """A report could be neither uploaded nor kept: somebody must look at it."""


class DuplicateItemError(QueueError, ValueError):
    """The queue has an item with this id already."""


class ItemNotFoundError(QueueError, KeyError):
    """The queue has no item with this id."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ItemTakenError(QueueError):
    """Somebody else has taken the item since this copy of it was read. Nothing was changed."""

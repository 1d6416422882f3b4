"""Records that say what was told of a queue, so that it is told once: that it is full, that it is empty."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import Put

FULL_QUEUE: Final = "full queue"
EMPTY_QUEUE: Final = "empty queue"


def full_mark(queue: str, by: str) -> Put:
    """Tells that a queue is full, unless that was told since it last had room. A store writes it in the transaction
    that refuses a job, or sheds one, because of the queue's capacity; the janitor deletes it."""
    return Put(kind=FULL_QUEUE, name=queue, value=b"{}", expect=0, tells="queue_full", by=by)


def has_room(unfinished: int, capacity: int | None) -> bool:
    """Whether a queue that was full has room again: at most four fifths of its capacity are used. With one free place
    as the limit, a producer that waits for room would have each of its jobs told."""
    return capacity is None or 5 * unfinished <= 4 * capacity

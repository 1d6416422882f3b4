"""The arithmetic of queues that are nearly full; stores do it inside the transaction that accepts a job."""

from __future__ import annotations

from typing import Final

SHORTENED_FROM: Final = 7  # from this priority on wait limits shrink
SHORTENED_NOTE: Final = "its wait limit is shorter: the queue is nearly full"


def shortened_wait(expires_in: int, priority: int, unfinished: int, capacity: int | None) -> int:
    """The wait limit, in microseconds, of a job for a queue that has so many unfinished: what is not urgent waits less
    from four fifths of the capacity on, and a quarter where the queue is full."""
    if capacity is None or priority < SHORTENED_FROM:
        return expires_in
    over = min(max(5 * unfinished - 4 * capacity, 0), capacity)
    return expires_in - expires_in * 3 * over // (4 * capacity) if over else expires_in

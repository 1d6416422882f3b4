"""Shorter wait limits for nearly full queues. Stores do this arithmetic in the transaction that accepts a job."""

from __future__ import annotations

from typing import Final

SHORTENED_FROM: Final = 7  # jobs of this priority and less urgent ones get shorter wait limits
SHORTENED_NOTE: Final = "its wait limit is shorter: the queue is nearly full"


def shortened_wait(expires_in: int, priority: int, unfinished: int, capacity: int | None) -> int:
    """The wait limit, in microseconds, of a job for a queue with so many unfinished jobs.

    Jobs that are not urgent get a shorter limit once the queue is 80 % full, falling linearly to a quarter of
    `expires_in` when it is full."""
    if capacity is None or priority < SHORTENED_FROM:
        return expires_in
    over = min(max(5 * unfinished - 4 * capacity, 0), capacity)
    return expires_in - expires_in * 3 * over // (4 * capacity) if over else expires_in

"""Finds the items that make a call fail: a call that raised is made again with each half of its items, until every item
has either been in a call that succeeded, or failed alone.

One bad item of n costs at most 2 log2 n more calls. If two items in a row fail alone with a transient error, and no
call has succeeded yet, it is not the items that are bad: what they all need is away. Then no more calls are made."""

from __future__ import annotations

from typing import Final

OUTAGE: Final = 2  # items in a row that fail alone with a transient error before any call succeeds


class Bisection:
    """The calls of `count` items. Parts are contiguous, and come in order."""

    def __init__(self, count: int) -> None:
        self._parts = [range(count)] if count else []
        self._alone_in_a_row = 0
        self._has_succeeded = False

    def next_part(self) -> range | None:
        """The items of the next call; None once all are known, or given up."""
        return self._parts.pop() if self._parts else None

    def succeeded(self) -> None:
        """The last call returned."""
        self._has_succeeded = True

    def failed(self, part: range, *, is_transient: bool) -> bool:
        """The call of this part raised. True if its items are called again, False if its only item is known to be
        bad."""
        if len(part) > 1:
            middle = len(part) // 2
            self._parts += [part[middle:], part[:middle]]
            return True
        self._alone_in_a_row = self._alone_in_a_row + 1 if is_transient else 0
        return False

    @property
    def is_outage(self) -> bool:
        """Whether what the items need is away, so that the others should be tried another time."""
        return not self._has_succeeded and self._alone_in_a_row >= OUTAGE

    def rest(self) -> list[int]:
        """The items whose outcome is not known, in order. No more calls are made."""
        left = [item for part in reversed(self._parts) for item in part]
        self._parts = []
        return left

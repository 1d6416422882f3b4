"""Numbers from the sequences of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class SequenceCache:
    """Numbers that a transaction has drawn from sequences. A rollback does not return them to the sequence, so a
    transaction that starts over uses them first."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._used: dict[str, int] = {}

    def reserve(self, statement: str, count: int, rows: Callable[..., list[Any]]) -> None:
        """Have so many numbers ready."""
        numbers = self._numbers.setdefault(statement, [])
        missing = count - (len(numbers) - self._used.get(statement, 0))
        if missing > 0:
            numbers += [number for (number,) in rows(statement, (missing,))]

    def take(self, statement: str, rows: Callable[..., list[Any]]) -> int:
        """The next number."""
        self.reserve(statement, 1, rows)
        used = self._used.get(statement, 0)
        self._used[statement] = used + 1
        return self._numbers[statement][used]

    def rewind(self) -> None:
        """Use the same numbers again."""
        self._used.clear()

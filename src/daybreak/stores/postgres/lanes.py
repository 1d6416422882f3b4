"""Lanes: one for each queue, task and version, known by a number."""

from __future__ import annotations

from daybreak.stores.kernel.row import LaneName


class Lanes:
    """The lanes that this process has seen. A lane never changes and is never deleted."""

    def __init__(self) -> None:
        self.numbers: dict[LaneName, int] = {}
        self.names: dict[int, LaneName] = {}

    def add(self, number: int, name: LaneName) -> None:
        self.numbers[name] = number
        self.names[number] = name

    def copy(self) -> Lanes:
        """A copy for a transaction that adds lanes: they exist only after its commit."""
        copied = Lanes()
        copied.numbers, copied.names = dict(self.numbers), dict(self.names)
        return copied

    def update(self, other: Lanes) -> None:
        self.numbers.update(other.numbers)
        self.names.update(other.names)

"""How much one exchange may carry. While it is under way others wait for it, an urgent job too; but a small one costs
nearly as much as a large one where a commit is slow. Both are measured, never assumed."""

from __future__ import annotations

from typing import Final

GOAL: Final = 0.002  # seconds that an exchange should last
WORTH: Final = 3.0  # but so many times what it costs empty
WORTH_BESIDE_URGENT: Final = 1.6  # where urgent jobs come among others
SHORT_FOR: Final = 2000  # exchanges after which an urgent job is forgotten
BOUNDS: Final = (32, 1000)
_FORGET: Final = 0.97
_DOUBT: Final = 1.05  # by which the least that an item has cost grows with each exchange
_TICK: Final = 1e-6  # seconds; a clock may stand still for longer than an exchange lasts


class BatchSize:
    """A running straight line through how long exchanges took by how much they carried."""

    def __init__(self) -> None:
        self.lasts = 0.0
        self._n = self._t = self._nn = self._nt = self._weight = 0.0
        self._least = float("inf")  # seconds that one item has taken, all that its exchange had to wait for included
        self._short_for = 0  # exchanges

    def found_urgent(self) -> None:
        """There was an urgent job among others, and more may follow: exchanges are kept short for a while."""
        self._short_for = SHORT_FOR

    def took(self, items: int, seconds: float) -> None:
        self.lasts += 0.2 * (seconds - self.lasts)
        self._short_for = max(self._short_for - 1, 0)
        if items:
            self._least = min(self._least * _DOUBT, max(seconds, _TICK) / items)
        self._weight = self._weight * _FORGET + 1
        self._n = self._n * _FORGET + items
        self._t = self._t * _FORGET + seconds
        self._nn = self._nn * _FORGET + items * items
        self._nt = self._nt * _FORGET + items * seconds

    @property
    def limit(self) -> int:
        """How many leases to ask for, when as many settlements go with them."""
        if self._weight < 5 or not self._n:
            return BOUNDS[0] * 2
        n, t = self._n / self._weight, self._t / self._weight
        spread = self._nn / self._weight - n * n
        each = (self._nt / self._weight - n * t) / spread if spread > 0.05 * n * n else t / n / 2
        # Where many share the processors or the store, waits hide what an item costs: not more than it took lately.
        each = max(min(each, t / n, self._least), 0.1 * t / n, _TICK / BOUNDS[1])
        empty = t - each * n
        worth = WORTH_BESIDE_URGENT if self._short_for else WORTH
        items = (max(GOAL, worth * empty) - empty) / each
        return int(min(max(items / 2, BOUNDS[0]), BOUNDS[1]))

"""How many leases one exchange with the store should ask for.

While an exchange is under way others wait for it, even an urgent job. But where a commit is slow, a small exchange
costs nearly as much as a large one. Both costs are measured."""

from __future__ import annotations

from typing import Final

TARGET_SECONDS: Final = 0.002  # how long an exchange should take
MAX_COST_RATIO: Final = 3.0  # or up to so many times what an empty exchange takes, if that is longer
MAX_COST_RATIO_WITH_URGENT: Final = 1.6  # the same while urgent jobs arrive among others
URGENT_EXCHANGES: Final = 2000  # exchanges after which an urgent job is forgotten
MIN_LIMIT, MAX_LIMIT = 32, 1000
_DECAY: Final = 0.97  # weight of earlier exchanges, per exchange
_ITEM_COST_GROWTH: Final = 1.05  # per exchange, so that the lowest cost of an item is forgotten if costs rise
_CLOCK_TICK: Final = 1e-6  # seconds; a coarse clock may show no time at all for an exchange


class BatchSize:
    """A running linear regression of the duration of exchanges over the number of items they carried."""

    def __init__(self) -> None:
        self.seconds = 0.0  # how long exchanges take, as a moving average
        self._n = self._t = self._nn = self._nt = self._weight = 0.0
        self._lowest_item_cost = float("inf")  # seconds per item, including everything that the exchange waited for
        self._urgent_exchanges = 0  # for how many more exchanges to stay short

    def expect_urgent(self) -> None:
        """An urgent job arrived among others, and more may follow: keep exchanges short for a while."""
        self._urgent_exchanges = URGENT_EXCHANGES

    def record(self, items: int, seconds: float) -> None:
        """Note how long an exchange took and how many items it carried."""
        self.seconds += 0.2 * (seconds - self.seconds)
        self._urgent_exchanges = max(self._urgent_exchanges - 1, 0)
        if items:
            item_cost = max(seconds, _CLOCK_TICK) / items
            self._lowest_item_cost = min(self._lowest_item_cost * _ITEM_COST_GROWTH, item_cost)
        self._weight = self._weight * _DECAY + 1
        self._n = self._n * _DECAY + items
        self._t = self._t * _DECAY + seconds
        self._nn = self._nn * _DECAY + items * items
        self._nt = self._nt * _DECAY + items * seconds

    @property
    def limit(self) -> int:
        """How many leases to ask for, if as many settlements go with them."""
        if self._weight < 5 or not self._n:
            return MIN_LIMIT * 2
        n, t = self._n / self._weight, self._t / self._weight
        variance = self._nn / self._weight - n * n
        item_cost = t / n / 2
        if variance > 0.05 * n * n:
            item_cost = (self._nt / self._weight - n * t) / variance
        # Where many processes share the cores or the store, waiting times inflate the measured cost of an item: assume
        # no more than the lowest recent cost.
        item_cost = max(min(item_cost, t / n, self._lowest_item_cost), 0.1 * t / n, _CLOCK_TICK / MAX_LIMIT)
        empty_cost = t - item_cost * n
        ratio = MAX_COST_RATIO_WITH_URGENT if self._urgent_exchanges else MAX_COST_RATIO
        items = (max(TARGET_SECONDS, ratio * empty_cost) - empty_cost) / item_cost
        return int(min(max(items / 2, MIN_LIMIT), MAX_LIMIT))

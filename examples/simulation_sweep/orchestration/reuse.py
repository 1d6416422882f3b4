"""Results that are there already. This is a small memory of one process: the place of a cache, which would keep them in
the store, for all processes, with a size and an age."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from orchestration.tasks import SimulationResult

MOST: Final = 1000


class ResultReuse:
    """The latest results by what decided them."""

    def __init__(self, most: int = MOST) -> None:
        self._results: OrderedDict[str, SimulationResult] = OrderedDict()
        self._most = most
        self.hits = 0

    def get(self, key: str) -> SimulationResult | None:
        found = self._results.get(key)
        if found is not None:
            self._results.move_to_end(key)
            self.hits += 1
        return found

    def put(self, key: str, result: SimulationResult) -> None:
        self._results[key] = result
        self._results.move_to_end(key)
        while len(self._results) > self._most:
            self._results.popitem(last=False)

    def clear(self) -> None:
        self._results.clear()

    def __len__(self) -> int:
        return len(self._results)

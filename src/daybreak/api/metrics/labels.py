"""Bounded labels: a label with a value per job or user would fill the monitoring's memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

MAX_VALUES: Final = 200
OTHER: Final = "other"


class Labels:
    """The values of one label that are shown by name: those with the most jobs. All others are `other`."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        heaviest = sorted(weights, key=lambda value: (-weights[value], value))[:MAX_VALUES]
        self._named = frozenset(heaviest)

    def __getitem__(self, value: str) -> str:
        return value if value in self._named else OTHER


def weigh(values: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How much each value counts."""
    found: dict[str, int] = {}
    for value, n in values:
        found[value] = found.get(value, 0) + n
    return found

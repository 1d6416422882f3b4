"""The document's priority numbers, and its weights, as priorities of Daybreak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from daybreak import BadInput, Priority
from daybreak.core.units import bucket
from daybreak.core.units import priority as as_priority

LEVELS: Final = (Priority.EMERGENCY, Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW)
STEPS: Final = 10  # priorities of Daybreak are 0 to 10
_BY_NUMBER: Final = dict(zip((4, 3, 2, 1, 0), LEVELS, strict=True))


def priority_of(number: int) -> Priority:
    """The priority of a number of the document: 4 is Emergency, 0 is Low."""
    if isinstance(number, bool) or not isinstance(number, int) or number not in _BY_NUMBER:
        raise BadInput(f"{number!r} is not a priority of the document: write 4 (Emergency), 3, 2, 1 or 0 (Low)")
    return _BY_NUMBER[number]


def number_of(priority: object) -> int:
    """The document's number of a priority. The document has no level below Low, so 7 to 10 are 0."""
    return len(LEVELS) - 1 - LEVELS.index(level_of(as_priority(priority)))


def level_of(priority: int) -> Priority:
    """The document's level of a priority from 0 to 10."""
    return min(bucket(priority), Priority.LOW)


class Weights:
    """The rank of each level. Without weights the order is strictly by level.

    With weights, a request of the heaviest level goes before a request of the lightest level that arrived up to
    `max_wait_time` earlier; levels between them in proportion. So a request is overtaken for a limited time only."""

    def __init__(self, weights: Mapping[Priority, int] | None) -> None:
        self.are_given = weights is not None
        if weights is None:
            self._ranks = {level: level.value for level in LEVELS}
        else:
            self._ranks = dict(zip(LEVELS, _ranks(_checked(weights)), strict=True))

    def rank(self, priority: object) -> int:
        """The priority with which Daybreak ranks a request."""
        value = as_priority(priority)
        return self._ranks[level_of(value)] if self.are_given else value

    def level(self, rank: int) -> Priority:
        """The level for a priority of Daybreak; of several levels with the same weight, the most urgent."""
        if not self.are_given:
            return level_of(rank)
        last = max((own for own in self._ranks.values() if own <= rank), default=min(self._ranks.values()))
        return next(level for level, own in self._ranks.items() if own == last)


def _checked(weights: Mapping[Priority, int]) -> list[int]:
    if set(weights) != set(LEVELS):
        raise BadInput(f"priority_weights: give a weight to each of {', '.join(level.name for level in LEVELS)}")
    found = [weights[level] for level in LEVELS]
    if any(isinstance(weight, bool) or not isinstance(weight, int) or weight < 1 for weight in found):
        raise BadInput("priority_weights: a weight is an integer of 1 or more")
    for level, more, less in zip(LEVELS, found, found[1:], strict=False):
        if more < less:
            raise BadInput(f"priority_weights: {level.name} weighs {more}, less than the level below it, {less}")
    return found


def _ranks(weights: list[int]) -> list[int]:
    """Ranks in proportion to the weights. Different weights get different ranks."""
    heaviest, lightest = weights[0], weights[-1]
    if heaviest == lightest:
        return [Priority.NORMAL.value] * len(weights)
    different = sorted(set(weights), reverse=True)
    ranks: dict[int, int] = {}
    for at, weight in enumerate(different):
        wanted = round(STEPS * (heaviest - weight) / (heaviest - lightest))
        first = ranks[different[at - 1]] + 1 if at else 0
        ranks[weight] = min(max(wanted, first), STEPS - (len(different) - 1 - at))
    return [ranks[weight] for weight in weights]

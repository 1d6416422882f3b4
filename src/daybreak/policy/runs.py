"""Decisions about runs: when one pauses by itself, and how good its predicted ends were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

MAX_LOOKS: Final = 40
FIRST_LOOK_GAP: Final = timedelta(seconds=5)


class Look(Struct, frozen=True, array_like=True):
    """A prediction of the end: when it was made, and the range that it gave."""

    at: datetime
    low: datetime
    high: datetime


class Accuracy(Struct, frozen=True, kw_only=True):
    """How many predictions were recorded while the run went on, and how many of their ranges held its end."""

    looks: int
    held: int


def alike(kinds: Iterable[str], enough: int) -> str:
    """The kind of failure that occurs at least `enough` times, or nothing."""
    for kind, n in Counter(kinds).most_common(1):
        if n >= enough:
            return kind
    return ""


def add_look(looks: Sequence[Look], look: Look) -> tuple[Look, ...]:
    """The looks with one more. They are spread over the whole run: when there are too many, every second one goes."""
    kept = tuple(looks)
    if len(kept) >= MAX_LOOKS:
        kept = kept[::2]
    return (*kept, look)


def is_look_due(looks: Sequence[Look], now: datetime) -> bool:
    """Whether it is time to record another prediction: the longer the run, the fewer."""
    if not looks:
        return True
    gap = max((looks[-1].at - looks[0].at) / (MAX_LOOKS // 2), FIRST_LOOK_GAP)
    return now - looks[-1].at >= gap


def accuracy_of(looks: Sequence[Look], finished_at: datetime) -> Accuracy:
    """How the predictions compare with the end."""
    return Accuracy(looks=len(looks), held=sum(look.low <= finished_at <= look.high for look in looks))

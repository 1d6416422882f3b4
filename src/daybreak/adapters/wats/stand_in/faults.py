"""How the stand-in breaks: the first submissions one after another, then at random by a seed."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Final, Literal

Fault = Literal["errors", "busy", "lose", "drop", "down"]
KINDS: Final[tuple[Fault, ...]] = ("errors", "busy", "lose", "drop")


@dataclass
class Faults:
    """Submissions are counted from 1. The numbers follow one another: with errors=2 and busy=3 the submissions 1 and 2
    are answered by HTTP 500, and 3 to 5 by HTTP 429.

    errors       so many submissions are answered by HTTP 500, and not stored
    busy         so many are answered by HTTP 429 with Retry-After, and not stored
    lose         so many are stored, but the connection is closed before the answer
    drop         so many are not stored, and the connection is closed
    retry_after  seconds that a Retry-After asks for
    slow         seconds that a submission takes
    down_at      at this submission the server goes away, for `down_for` seconds: its port refuses connections
    fail_share   the share of the other submissions, from 0 to 1, with one of the four faults; `seed` chooses which
    """

    errors: int = 0
    busy: int = 0
    lose: int = 0
    drop: int = 0
    retry_after: int = 1
    slow: float = 0.0
    down_at: int | None = None
    down_for: float = 1.0
    fail_share: float = 0.0
    seed: int = 0
    submissions: int = field(default=0, init=False)
    injected: dict[str, int] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - to be repeatable

    def next(self) -> Fault | None:
        """What becomes of the next submission."""
        with self._lock:
            self.submissions += 1
            fault = self._choose()
            if fault is not None:
                self.injected[fault] = self.injected.get(fault, 0) + 1
            return fault

    def _choose(self) -> Fault | None:
        if self.submissions == self.down_at:
            return "down"
        left = self.submissions
        for kind in KINDS:
            planned = int(getattr(self, kind))
            if left <= planned:
                return kind
            left -= planned
        if self._random.random() < self.fail_share:
            return self._random.choice(KINDS)
        return None

"""How the stand-in breaks: at a call by its number, or at random by a seed."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["die", "hang", "busy", "wrong", "drop", "unavailable"]


@dataclass
class Faults:
    """Calls of `simulate` are counted from 1, whatever becomes of them.

    die_after   so many calls are answered, then the server is gone, in the midst of the next
    hang_at     this call is never answered
    busy        so many calls, the first ones, are refused as if another simulation ran
    wrong_at    this call is answered with fewer values than instants
    slow        seconds that a simulation takes at least
    fail_share  the share of calls, from 0 to 1, that fail in a way that a retry cures: refused as busy, the connection
                closed without an answer, or HTTP 503; `seed` chooses which
    """

    die_after: int | None = None
    hang_at: int | None = None
    busy: int = 0
    wrong_at: int | None = None
    slow: float = 0.0
    fail_share: float = 0.0
    seed: int = 0
    calls: int = field(default=0, init=False)
    injected: int = field(default=0, init=False)  # faults at random so far
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - to be repeatable

    def next(self) -> Fault | None:
        """What becomes of the next call."""
        with self._lock:
            self.calls += 1
            if self.die_after is not None and self.calls > self.die_after:
                return "die"
            if self.calls == self.hang_at:
                return "hang"
            if self.calls <= self.busy:
                return "busy"
            if self.calls == self.wrong_at:
                return "wrong"
            if self._random.random() < self.fail_share:
                self.injected += 1
                return self._random.choice(("busy", "drop", "unavailable"))
            return None

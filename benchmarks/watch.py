"""The result of a case, and the clock that measures it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Timed:
    """Seconds that count, and what was done in them; or, where a rate says nothing, the `figure` itself.

    `facts` are settings read back, not assumed."""

    jobs: int = 0
    seconds: float = 0.0
    figure: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def timing(self, part: str | None = None) -> Iterator[None]:
        start = time.perf_counter()
        yield
        took = time.perf_counter() - start
        self.seconds += took
        if part:
            self.parts[part] = self.parts.get(part, 0.0) + took


def warm_up(jobs: int) -> int:
    """Jobs done before the clock starts: code is loaded and, one commit per job, the log file stops growing."""
    return max(1, jobs // 5)

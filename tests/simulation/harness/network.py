"""What lies between a process and its store: delay, lost requests, lost replies, and times without any contact."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from harness.plan import Plan

LONGEST_DELAY = 0.6  # seconds there or back, while the store can be reached at all


@dataclass(slots=True)
class Passage:
    """The fate of one call."""

    there: float
    back: float
    lost: Literal["request", "reply"] | None


class Network:
    """`silent_until` and `stalled_until` are the ends of the outages under way: calls fail, or hang till the end."""

    def __init__(self, plan: Plan, die: Random) -> None:
        self._plan = plan
        self._die = die
        self.calm = False
        self.silent_until = 0.0
        self.stalled_until = 0.0

    def passage(self) -> Passage:
        die = self._die
        there, back = die.uniform(0.0002, 0.01), die.uniform(0.0002, 0.01)
        lost: Literal["request", "reply"] | None = None
        if not self.calm:
            if self._plan.has("slow") and die.random() < 0.08:
                there = die.uniform(0.01, LONGEST_DELAY)
            if self._plan.has("slow") and die.random() < 0.05:
                back = die.uniform(0.01, LONGEST_DELAY)
            if self._plan.has("lost_request") and die.random() < 0.02:
                lost = "request"
            elif self._plan.has("lost_reply") and die.random() < 0.02:
                lost = "reply"
        return Passage(there, back, lost)

    def jitter(self) -> float:
        return self._die.uniform(0.0, 0.05)

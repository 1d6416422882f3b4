"""The size of the demo: as many jobs as this machine runs in half a minute."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from daybreak.demo import buck

SHOWN_LOAD: Final = 1.0  # ohms; in every plan, for the plot at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The points of the sweep, the lease, and how long to wait for progress before the demo fails."""

    duties: tuple[float, ...]
    loads: tuple[float, ...]
    lease_for: timedelta
    timeout: timedelta = timedelta(minutes=2)

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(duty, load) for load in self.loads for duty in self.duties]


QUICK: Final = Plan(
    duties=tuple(n / 10 for n in range(1, 10)),
    loads=tuple(n / 2 for n in range(1, 9)),
    lease_for=timedelta(seconds=1),
)


def full(lasts_for: timedelta = timedelta(seconds=28)) -> Plan:
    """A plan with as many points as this machine computes in about half a minute under its present load: 190 to 760."""
    began = time.perf_counter()
    for _ in range(3):
        buck.simulate(0.5, SHOWN_LOAD)
    one = (time.perf_counter() - began) / 3
    duties = tuple(n / 20 for n in range(1, 20))
    at_once = min(os.cpu_count() or 1, 3)  # four child processes at first, two after the kill
    wanted = round(lasts_for.total_seconds() * at_once / one / len(duties))
    loads = tuple(n / 4 for n in range(2, 2 + min(max(wanted, 10), 40)))
    return Plan(duties=duties, loads=loads, lease_for=timedelta(seconds=2))

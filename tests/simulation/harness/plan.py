"""What a seed decides before anything runs: how big, how long, and which troubles may happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

from daybreak.services.reaper import reap_interval

QUEUES: Final = ("mail", "bulk", "aged")
LEASE: Final = timedelta(seconds=10)
REAP_EVERY: Final = reap_interval(LEASE)
LEASE_SECONDS: Final = LEASE.total_seconds()
CHAOS_MARGIN: Final = 20.0  # outages end this long before the quiet, so that every back-off has ended with it
TROUBLES: Final = (
    "crash", "freeze", "freeze_all", "outage", "stall", "clock", "lost_request", "lost_reply", "slow", "operator",
    "settings", "reaper_crash", "reaper_freeze", "freeze_before_settle", "client_crash", "skew",
    "deadly", "fatal", "no_start", "stop", "freeze_child",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    seed: int
    jobs: int
    workers: int
    slots: int
    chaos_for: float
    troubles: frozenset[str]
    deaf: bool  # stores in other processes wake nobody here: workers live by looking again
    shuffle: bool
    deadly: frozenset[int]  # the wishes whose jobs kill whoever runs them
    fatal: frozenset[int]  # those that kill the child that runs them
    quick: range  # those that come together, and whose jobs all take the same short time
    faults: list[tuple[float, str]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # the slots of each resource

    def has(self, trouble: str) -> bool:
        return trouble in self.troubles


def plan_for(seed: int) -> Plan:
    die = Random(f"{seed}:plan")
    # Each kind of trouble is in only two of three simulations: what is always on hides what it covers.
    troubles = frozenset(trouble for trouble in TROUBLES if die.random() < 0.65)
    chaos_for = die.uniform(45.0, 75.0)
    jobs = die.randint(25, 50)
    quick = range(jobs, jobs + die.randint(20, 40)) if die.random() < 0.5 else range(0)
    return Plan(
        seed=seed,
        jobs=jobs,
        workers=die.randint(2, 4),
        slots=die.randint(1, 3),
        chaos_for=chaos_for,
        troubles=troubles,
        deaf=die.random() < 0.3,
        shuffle=die.random() < 0.5,
        # Few, or a lone reaper after another would die before it has watched for a lease.
        deadly=frozenset((*die.sample(range(20), die.randint(1, 2)), *quick[5:6]) if "deadly" in troubles else ()),
        fatal=frozenset(die.sample(range(20), die.randint(1, 2)) if "fatal" in troubles else ()),
        quick=quick,
        faults=faults_for(die, troubles, chaos_for),
    )


def faults_for(die: Random, troubles: frozenset[str], chaos_for: float) -> list[tuple[float, str]]:
    often = {
        "crash": 3,
        "freeze": 3,
        "freeze_all": 1,
        "outage": 2,
        "stall": 1,
        "clock": 2,
        "client_crash": 1,
        "stop": 2,
        "freeze_child": 2,
    }
    found = [
        (die.uniform(1.0, chaos_for - (CHAOS_MARGIN if kind in {"outage", "stall"} else 1.0)), kind)
        for kind, most in often.items()
        if kind in troubles
        for _ in range(die.randint(1, most))
    ]
    return sorted(found)

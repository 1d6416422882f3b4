"""How many workers an autoscaler should run: by what waits, how long jobs take, and when all should be done."""

from __future__ import annotations

import math
from datetime import timedelta

from msgspec import Struct

from daybreak.core.model import State
from daybreak.core.text import counted
from daybreak.store.protocol import Filter, Store

_NO_RUNS = frozenset({
    "submitted", "shortened", "spared", "waited", "batches", "last", "attempts", "cancelled", "failed expired",
    "failed shed", "failed error", "calls", "elements",
})  # fmt: skip


class Load(Struct, frozen=True, kw_only=True):
    """`waiting` jobs are queued or will be without further ado; `seconds` is how long an attempt takes on average, None
    if none has run yet."""

    waiting: int
    running: int
    seconds: float | None


class Wanted(Struct, frozen=True, kw_only=True):
    """How many `workers` are wanted, and why."""

    workers: int
    load: Load
    reason: str


async def load_of(store: Store, queue: str | None = None) -> Load:
    """What a store has to do. The average is over all attempts that the store counted."""
    waiting = running = 0
    states = frozenset({State.QUEUED, State.BLOCKED, State.RUNNING})
    for tally in await store.count(Filter(states=states, queue=queue)):
        if tally.state is State.RUNNING:
            running += tally.n
        else:
            waiting += tally.n
    n = took = 0
    for total in await store.totals(queue):
        if total.what not in _NO_RUNS:
            n += total.n
            took += total.took
    return Load(waiting=waiting, running=running, seconds=took / n / 1e6 if n else None)


def wanted(load: Load, *, slots: int, within: timedelta, least: int = 0, most: int = 100) -> Wanted:
    """Enough workers to end everything within this time, each with so many slots, and no more than there are jobs."""
    jobs = load.waiting + load.running
    if not jobs:
        return Wanted(workers=least, load=load, reason="no job waits or runs")
    by_jobs = math.ceil(jobs / slots)
    if load.seconds is None:
        workers, reason = by_jobs, "no attempt has ended yet, so one slot for each job"
    else:
        by_time = math.ceil(jobs * load.seconds / within.total_seconds() / slots)
        workers = max(1, min(by_time, by_jobs))
        waiting = counted(jobs, "job")
        reason = f"{waiting} of {load.seconds:.1f} s within {within.total_seconds():g} s, {slots} at once per worker"
    return Wanted(workers=min(max(workers, least), most), load=load, reason=reason)

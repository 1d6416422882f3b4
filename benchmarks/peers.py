"""How fast others accept a job: one process, one call after another, each library as its documentation shows."""

from __future__ import annotations

from pathlib import Path

from benchmarks.watch import Timed, warm_up
from benchmarks.workers import runner_for


def enqueue(name: str, place: Path, jobs: int) -> Timed:
    timed = Timed(jobs=jobs)
    with runner_for(name, place) as peer:
        peer.enqueue(range(warm_up(jobs)))
        with timed.timing():
            peer.enqueue(range(jobs))
        timed.facts = peer.facts()
    return timed


def bulk(name: str, place: Path, jobs: int) -> Timed:
    """With its own call for many, a thousand at a time where the peer does not divide them itself."""
    timed = Timed(jobs=jobs)
    with runner_for(name, place) as peer:
        assert peer.bulk, f"{name} has no call for many"
        peer.bulk(range(warm_up(jobs)))
        with timed.timing():
            peer.bulk(range(jobs))
        timed.facts = peer.facts()
    return timed

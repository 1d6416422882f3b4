"""Runs one case in its own process: reads the request as JSON, and writes the result as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from benchmarks.starts import PLACE
from benchmarks.watch import Timed


def main() -> None:
    # At SIGTERM a case leaves its blocks, which end its workers and servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    request = json.loads(sys.argv[1])
    os.environ[PLACE] = request["place"]
    timed = run(request["work"], Path(request["place"]), request["jobs"], request["options"])
    print(json.dumps(dataclasses.asdict(timed)))


def run(work: str, place: Path, jobs: int, options: dict[str, int]) -> Timed:
    """What a row names as its work; a case loads what it needs and nothing else."""
    match work.split():
        case ["bare", "commit" | "heap" | "priorities" | "threads" as what]:
            from benchmarks import raw

            return getattr(raw, what)(place, jobs, **options)
        case ["enqueue" | "bulk" as what, runner]:
            from benchmarks import peers

            return getattr(peers, what)(runner, place, jobs)
        case ["submit", "threads" | "tasks" | "many" as what, store]:
            from benchmarks import submits

            return getattr(submits, what)(store, place, jobs, **options)
        case ["exchange", store]:
            from benchmarks import seam

            return asyncio.run(seam.exchange(store, place, jobs, **options))
        case ["drain", "memory/ours"]:
            from benchmarks import drains

            return drains.in_memory(jobs)
        case ["drain", runner]:
            from benchmarks import drains

            return drains.drain(runner, place, jobs, **options)
        case ["crew", store]:
            from benchmarks import drains

            return drains.crew(store, place, jobs, **options)
        case ["idle" | "urgent" as what, runner]:
            from benchmarks import latency

            return getattr(latency, what)(runner, place, jobs, **options)
        case ["behind", store]:
            from benchmarks import latency

            return latency.behind(store, place, jobs, **options)
        case ["sustained", store]:
            from benchmarks import sustained

            return sustained.sustained(store, place, jobs)
        case ["parked" | "locks" as what, store]:
            from benchmarks import sharing

            return getattr(sharing, what)(store, place, jobs)
        case ["batches", store]:
            from benchmarks.batch_claims import amid_batches

            return amid_batches(store, place, jobs)
        case ["sweep", store]:
            from benchmarks import sweeps

            return sweeps.sweep(store, place, jobs)
        case ["hits", store]:
            from benchmarks.hits import hits

            return hits(store, place, jobs)
        case ["naps", kind, store]:
            from benchmarks import naps

            return naps.naps(store, kind, place, jobs, **options)
        case ["recover" | "rest" as what, store]:
            from benchmarks import care

            return getattr(care, what)(store, place, jobs)
        case ["seen", store]:
            from benchmarks import event_streams

            return event_streams.seen(store, place, jobs)
        case ["served", store]:
            from benchmarks import server_load

            return server_load.load(store, place, jobs, **options)
        case ["imported"]:
            from benchmarks import care

            return care.imported(place, jobs)
    raise ValueError(f"no case is called {work!r}")


if __name__ == "__main__":
    main()

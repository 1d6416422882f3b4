"""One case in a process of its own: the request comes as JSON, the answer goes out as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path

from benchmarks.starts import PLACE
from benchmarks.watch import Timed


def main() -> None:
    request = json.loads(sys.argv[1])
    os.environ[PLACE] = request["place"]
    timed = run(request["work"], Path(request["place"]), request["jobs"], request["options"])
    print(json.dumps(dataclasses.asdict(timed)))


def run(work: str, place: Path, jobs: int, options: dict[str, int]) -> Timed:
    """What a row names as its work; a case loads what it needs and nothing else."""
    match work.split():
        case ["bare", "commit" | "heap" as what]:
            from benchmarks import raw

            return getattr(raw, what)(place, jobs, **options)
        case ["enqueue" | "bulk" as what, peer]:
            from benchmarks import peers

            return getattr(peers, what)(peer, place, jobs)
        case ["submit", "threads" | "tasks" | "many" as what, store]:
            from benchmarks import submits

            return getattr(submits, what)(store, place, jobs, **options)
        case ["exchange", store]:
            from benchmarks import seam

            return asyncio.run(seam.exchange(store, place, jobs, **options))
        case ["drain", "memory"]:
            from benchmarks import drains

            return drains.in_memory(place, jobs)
        case ["drain", runner]:
            from benchmarks import drains

            return drains.drain(runner, place, jobs)
        case ["idle" | "urgent" as what, runner]:
            from benchmarks import latency

            return getattr(latency, what)(runner, place, jobs, **options)
        case ["behind"]:
            from benchmarks import latency

            return latency.behind(place, jobs, **options)
        case ["naps", kind]:
            from benchmarks import naps

            return naps.naps(kind, place, jobs, **options)
        case ["recover" | "rest" | "imported" as what]:
            from benchmarks import care

            return getattr(care, what)(place, jobs)
    raise ValueError(f"no case is called {work!r}")


if __name__ == "__main__":
    main()

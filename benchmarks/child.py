"""One case in a process of its own: the request comes as JSON, the answer goes out as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.watch import Timed


def main() -> None:
    request = json.loads(sys.argv[1])
    timed = run(request["work"], Path(request["place"]), request["jobs"], request["options"])
    print(json.dumps(dataclasses.asdict(timed)))


def run(work: str, place: Path, jobs: int, options: dict[str, int]) -> Timed:
    match work.split():
        case ["commit"]:
            from benchmarks import raw

            return raw.commit(place, jobs, **options)
        case ["heap"]:
            from benchmarks import raw

            return raw.heap(place, jobs)
        case [peer, "enqueue" | "drain" as what]:
            from benchmarks import peers

            return getattr(peers, what)(peer, place, jobs)
        case [store, "submit" | "bulk" | "exchange" as what]:
            from benchmarks import ours

            return asyncio.run(getattr(ours, what)(store, place, jobs, **options))
    raise ValueError(f"no case is called {work!r}")


if __name__ == "__main__":
    main()

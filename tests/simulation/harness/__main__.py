"""python -m harness --seeds 20000 [--from N] [--store memory|sqlite] [--jobs 2]

Runs seed after seed and stops at the first that breaks a promise, with its story and how to see it again."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from harness.simulate import simulate
from harness.stores import NAMES, fresh


@dataclass(frozen=True)
class Outcome:
    """What of a report crosses to the process that prints."""

    seed: int
    story: str
    sometimes: Counter[str]
    digest: str
    calls: int


def run_seed(seed: int, store: str, digest: bool = False) -> Outcome:
    with fresh(store) as factory:
        report = simulate(seed, factory)
    return Outcome(seed, report.story(), report.sometimes, report.digest if digest else "", report.calls)


def run_seeds(seeds: Iterable[int], store: str, jobs: int, digest: bool = False) -> Iterator[Outcome]:
    run = partial(run_seed, store=store, digest=digest)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", dest="start", type=int, default=0, help="the first seed")
    parser.add_argument("--store", choices=NAMES, default="memory")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--digest", action="store_true", help="print the digest of each seed's history")
    asked = parser.parse_args(argv)
    began, calls = time.monotonic(), 0
    sometimes: Counter[str] = Counter()
    seeds = range(asked.start, asked.start + asked.seeds)
    for done, outcome in enumerate(run_seeds(seeds, asked.store, asked.jobs, asked.digest), 1):
        sometimes += outcome.sometimes
        calls += outcome.calls
        if asked.digest:
            _say(f"{outcome.seed} {outcome.digest}")
        if outcome.story:
            _say(f"\nseed {outcome.seed} broke a promise:\n{outcome.story}\n")
            again = f"--from {outcome.seed} --seeds 1 --store {asked.store}"
            _say(f"see it again: python -m harness {again}")
            return 1
        if done % 500 == 0:
            _say(f"{done:>7,} seeds, {calls:,} calls, {done / (time.monotonic() - began):.1f} seeds/s")
    if not asked.digest:
        _say(f"{asked.seeds:,} seeds from {asked.start}, {calls:,} calls, no promise broken; and it saw, how often:")
        for what, times in sorted(sometimes.items()):
            _say(f"{times:>9,}  {what}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Known results: what a job costs whose result is known, and a run over points that all are."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.submits import opened
from benchmarks.watch import Timed
from daybreak import Daybreak, State
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange

SIMULATION = 0.2  # seconds; a hit is to cost less than a hundredth of one
CHUNK = 500


def hits(store: str, place: Path, jobs: int) -> Timed:
    """Milliseconds from a submit to its result, if that is known, in one thread; no worker runs. `p99 ms` is the 99th
    of a hundred, `run s` a new run over as many known points, and `of 0.2 s` a hit in percent of such a simulation."""
    with opened(store, place) as (app, task):
        cached = task.using(cache=True)
        cached.submit_many([{"n": n} for n in range(jobs)])
        app.portal.run(_complete(app, jobs))
        for n in range(max(10, jobs // 5)):
            cached.submit(n).result()
        took = sorted(_seconds(lambda n=n: cached.submit(n).result()) for n in range(jobs))
        run_took = _seconds(lambda: app.sweep(cached, {"n": range(jobs)}, name="known"))
        info = app.find_run("known").info()
        assert info.jobs[State.COMPLETED] == jobs, info.jobs
        hit = median(took)
        parts = {"p99 ms": took[len(took) * 99 // 100] * 1000, "run s": run_took, "of 0.2 s": 100 * hit / SIMULATION}
        return Timed(jobs=jobs, figure=hit * 1000, parts=parts)


async def _complete(app: Daybreak, jobs: int) -> None:
    """End all jobs as a worker would."""
    client = await app.client()
    for _ in range(0, jobs, CHUNK):
        claim = Claim(worker="benchmark", limit=CHUNK, lease_for=timedelta(minutes=5))
        leases = (await client.store.exchange(Exchange(claim=claim))).leases
        ended = [settle(lease, Done(b"1", ran=SIMULATION), chance=0.5, by="benchmark") for lease in leases]
        await client.store.exchange(Exchange(settle=ended))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

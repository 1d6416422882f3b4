"""Very many jobs through one store, while a worker takes them as fast as it can: does a claim cost more at the end?"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from statistics import mean

from benchmarks.starts import Starts
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours
from daybreak import values
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange

WAITING = 30_000  # jobs that wait, about
PROBED = 10
PART = 10


def sustained(store: str, place: Path, jobs: int) -> Timed:
    """How many times as long a claim of ten takes in the last tenth as in the first, asked by someone else than the
    busy worker, of a task that only this one knows. Finished jobs stay, as they do by default."""
    starts = Starts(place)
    told: list[tuple[int, float]] = []  # how many jobs had begun, and how many milliseconds a claim took
    with ours(store, place) as runner, runner.work() as worker:
        prober = _Prober(runner)
        submitted, began = 0, time.monotonic()
        while (done := len(starts)) < jobs:
            worker.check()
            if submitted - done < WAITING:  # to the end, so that the last tenth has as much going on beside it
                runner.fill(5000)
                submitted += 5000
            told.append((done, prober.claim()))
            time.sleep(0.01)
        took = time.monotonic() - began
        facts = runner.facts()
    first = [took for done, took in told if jobs // 100 <= done < jobs // PART]
    last = [took for done, took in told if done >= jobs - jobs // PART]
    parts = {
        "first tenth": mean(first),
        "last tenth": mean(last),
        "jobs/s": jobs / took,
    }
    return Timed(figure=parts["last tenth"] / parts["first tenth"], parts=parts, facts=facts)


class _Prober:
    """Claims and settles a few jobs of its own, through the seam."""

    def __init__(self, runner: Ours) -> None:
        self._runner = runner
        self._claim = Claim(
            worker="prober", tasks=frozenset({("probe", 1)}), limit=PROBED, lease_for=timedelta(minutes=1)
        )

    def claim(self) -> float:
        return self._runner.app.portal.run(self._probe())

    async def _probe(self) -> float:
        client = await self._runner.app.client()
        await client.submit_many([client.spec("probe", {}) for _ in range(PROBED)])
        asked = time.perf_counter()
        leases = (await client.store.exchange(Exchange(claim=self._claim))).leases
        took = time.perf_counter() - asked
        assert len(leases) == PROBED, "someone else has taken them"
        ended = [settle(lease, Done(values.encode(None)), chance=0.5, by="prober") for lease in leases]
        assert all((await client.store.exchange(Exchange(settle=ended))).settled)
        return took * 1000

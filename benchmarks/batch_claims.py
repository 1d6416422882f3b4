"""Very many jobs of batch tasks that wait: how much they slow claims of other jobs, and of batch calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.sharing import MINUTE, PROBED, PROBES, WARM_UP, end_jobs, folder_in
from benchmarks.stats import quantile
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours
from daybreak import Client
from daybreak.core.model import Batching, JobSpec
from daybreak.store.protocol import Claim, Exchange

SIZE = 4
KEYS = 10
CALL = ("call", 1)
CLAIM = Claim(
    worker="prober", tasks=frozenset({("probe", 1), CALL}), limit=PROBED, lease_for=MINUTE,
    batches={CALL: Batching(size=SIZE)},
)  # fmt: skip


def amid_batches(store: str, place: Path, jobs: int) -> Timed:
    """How many times as long a claim of ten plain jobs takes while very many jobs of a batch task wait in its queue,
    with keys that take turns; and a claim of ten batch calls, whose keys those jobs have, too.

    Of two stores one has them and the other a single one, and they are asked in turn: a machine is not as quick now as
    a minute ago."""
    with ours(store, folder_in(place, "few")) as few, ours(store, folder_in(place, "many"), "both") as many:
        few.app.portal.run(_fill(few.app, 1))
        many.app.portal.run(_fill(many.app, jobs))
        plain = [(_probed(few, _plain), _probed(many, _plain)) for _ in range(WARM_UP + PROBES)]
        calls = [(_probed(few, _element), _probed(many, _element)) for _ in range(WARM_UP + PROBES)]
    alone, beside = (quantile(lasted, 0.5) for lasted in zip(*plain[WARM_UP:], strict=True))
    calls_alone, calls_beside = (quantile(lasted, 0.5) for lasted in zip(*calls[WARM_UP:], strict=True))
    return Timed(
        figure=beside / alone,
        parts={
            "calls, x as long": calls_beside / calls_alone, "alone, ms": alone, "beside, ms": beside,
            "calls alone, ms": calls_alone, "calls beside, ms": calls_beside,
        },
    )  # fmt: skip


async def _fill(app: Any, jobs: int) -> None:
    client: Client = await app.client()
    await client.submit_many(_element(client, n, priority="low") for n in range(jobs))


def _plain(client: Client, n: int) -> JobSpec:
    return client.spec("probe", {}, priority="high")


def _element(client: Client, n: int, priority: str = "high") -> JobSpec:
    return msgspec.structs.replace(client.spec("call", {}, priority=priority), batch=f"model {n % KEYS}")


def _probed(runner: Ours, spec: Callable[[Client, int], JobSpec]) -> float:
    return runner.app.portal.run(_probe(runner.app, spec))


async def _probe(app: Any, spec: Callable[[Client, int], JobSpec]) -> float:
    """Milliseconds of a claim of ten: plain jobs, or batch calls."""
    client: Client = await app.client()
    jobs = PROBED if spec is _plain else PROBED * SIZE
    await client.submit_many([spec(client, n) for n in range(jobs)])
    asked = time.perf_counter()
    leases = (await client.store.exchange(Exchange(claim=CLAIM))).leases
    took = (time.perf_counter() - asked) * 1000
    assert len(leases) == jobs, f"{len(leases)} jobs were claimed where {jobs} were expected"
    await end_jobs(client, leases)
    return took

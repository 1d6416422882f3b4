"""Many jobs that wait for one resource: how much they slow other jobs, and how soon the next one gets the resource."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.stats import quantile
from benchmarks.watch import Timed
from benchmarks.workers import Ours, ours
from daybreak import Client, values
from daybreak.api.locks.lock_job import needs_of_locks, resources_of, spec_for
from daybreak.api.resources import provide
from daybreak.core.model import Done, JobSpec, Lease, Need, Options, Put, ResourceSettings, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange

PROBED = 10
PROBES = 100
WARM_UP = 10  # the first ones are always slower
MINUTE = timedelta(minutes=1)
BUSY = Options(resources=(Need("licence"),))


def parked(store: str, place: Path, jobs: int) -> Timed:
    """How many times as long a claim of ten takes while very many more urgent jobs of its queue wait for one busy
    resource; and what it took to put them aside, which claims do as they meet them.

    Of two stores one has them and the other a single one, and they are asked in turn: a machine is not as quick now as
    a minute ago."""
    with ours(store, folder_in(place, "few")) as few, ours(store, folder_in(place, "many"), "both") as many:
        few.app.portal.run(_park(few.app, 2))
        longest, claims = many.app.portal.run(_park(many.app, jobs))
        took = [(_probed(few), _probed(many)) for _ in range(WARM_UP + PROBES)]
    alone, beside = (quantile(lasted, 0.5) for lasted in zip(*took[WARM_UP:], strict=True))
    return Timed(
        figure=beside / alone,
        parts={"alone, ms": alone, "beside, ms": beside, "longest of the first, ms": longest, "of them": claims},
    )


def folder_in(place: Path, name: str) -> Path:
    folder = place / name
    folder.mkdir()
    folder.chmod(0o777)  # a server may be another user's
    return folder


async def _park(app: Any, jobs: int) -> tuple[float, int]:
    """One runs, all others wait. Returns the longest of the claims that found them, and the number of claims."""
    client: Client = await app.client()
    settings = msgspec.json.encode(ResourceSettings(slots=1))
    await client.store.put([Put(kind="resource", name="licence", value=settings)])
    await client.submit_many(_needy(client) for _ in range(jobs))
    longest, claims = 0.0, 0
    while await _blocked(client) < jobs - 1:
        asked = time.perf_counter()
        await _take(client)
        longest = max(longest, (time.perf_counter() - asked) * 1000)
        claims += 1
    return longest, claims


def _probed(runner: Ours) -> float:
    return runner.app.portal.run(_probe(runner.app))


async def _probe(app: Any) -> float:
    """Milliseconds that a claim of ten others takes."""
    client: Client = await app.client()
    await client.submit_many([client.spec("probe", {}) for _ in range(PROBED)])
    asked = time.perf_counter()
    leases = await _take(client)
    took = (time.perf_counter() - asked) * 1000
    assert len(leases) == PROBED, "something else was claimed"
    await end_jobs(client, leases)
    return took


def _needy(client: Client) -> JobSpec:
    return msgspec.structs.replace(client.spec("needy", {}, priority="high"), options=BUSY)


async def _blocked(client: Client) -> int:
    return sum(tally.n for tally in await client.store.count() if tally.state is State.BLOCKED)


async def _take(client: Client) -> list[Lease]:
    known = frozenset({("probe", 1), ("needy", 1)})
    claim = Claim(worker="prober", tasks=known, limit=PROBED, lease_for=MINUTE)
    return (await client.store.exchange(Exchange(claim=claim))).leases


async def end_jobs(client: Client, leases: list[Lease]) -> None:
    ended = [settle(lease, Done(values.encode(None)), chance=0.5, by="prober") for lease in leases]
    assert all((await client.store.exchange(Exchange(settle=ended))).settled)


def locks(store: str, place: Path, jobs: int) -> Timed:
    """Milliseconds from when a lock is given back until the next in line has it, while very many wait."""
    with ours(store, place) as runner:
        return runner.app.portal.run(_locks(runner.app, jobs))


async def _locks(app: Any, jobs: int) -> Timed:
    client: Client = await app.client()
    needs = needs_of_locks(["network"])
    await provide(client, resources_of(["network"]))
    began = time.perf_counter()
    waiting = [
        spec_for(
            client, client.spec("lock", {}).id, needs, holder=f"waiter {n}", owner="", priority=n % 11, wait=None,
            hold_for=MINUTE,
        )
        for n in range(jobs)
    ]  # fmt: skip
    await client.submit_many(waiting)
    stood = time.perf_counter() - began
    took, order = [], []
    for _ in range(PROBES):
        [holder] = (await client.find(state=State.RUNNING, limit=2)).jobs
        order.append(holder.priority)
        lease = Lease(
            seq=holder.seq, spec=holder.spec, fence=holder.fence, attempt=holder.attempt, priority=holder.priority,
            worker=holder.spec.holder or "", until=holder.created_at, lease_for=MINUTE, started_at=holder.created_at,
            created_at=holder.created_at,
        )  # fmt: skip
        asked = time.perf_counter()
        await end_jobs(client, [lease])
        took.append((time.perf_counter() - asked) * 1000)
    # The first found it free; from then on the most urgent has it, in the order in which they came.
    assert order[1:] == sorted(order[1:]), "a less urgent one went first"
    return Timed(figure=quantile(took, 0.5), parts={"p99": quantile(took, 0.99), "all in line, s": stood})

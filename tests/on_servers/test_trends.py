"""Trends on every store: a real worker's P95 beside a recount of its jobs, and many processes that merge."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta

import pytest
from server_stores import place_on
from server_tasks import app, double

from daybreak.client.trend_counts import read_count_minutes, take_snapshot
from daybreak.client.trend_stats import TrendStats, read_cumulative, read_minutes
from daybreak.core.model import JobSpec, Lease, Settlement, State
from daybreak.policy.trend_counts import differences
from daybreak.policy.trends import merged
from daybreak.stores import store_for
from daybreak.system.ports import RealWorld


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    """The URL of an empty store."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with place_on(request.param) as url:
        yield url


def test_p95_of_a_workers_waits_is_within_six_per_cent_of_a_recount(url):
    app.close()
    app.use(url)
    with app:
        jobs = double.submit_many([{"n": n} for n in range(400)])
        with app.worker(processes=1):
            for job in jobs:
                job.result(timeout="60s")
        trends = app.trends("1h", by="task")
        waits = sorted((info.started_at - info.created_at).total_seconds() for info in app.find(task=double))
    recount = waits[math.ceil(0.95 * len(waits)) - 1]
    assert len(waits) == 400
    assert trends.figures.wait_p95.total_seconds() == pytest.approx(recount, rel=0.06)
    assert (trends.figures.submitted, trends.figures.completed, trends.figures.waiting) == (400, 400, 0)
    assert [group.name for group in trends.groups] == ["double"]


async def test_processes_that_merge_at_the_same_time_lose_nothing_and_count_nothing_twice(url):
    stores = [await store_for(url).open() for _ in range(3)]
    try:
        now = datetime.now(UTC)
        spec = JobSpec(id="j", task="t")
        lease = Lease(
            seq=1, spec=spec, fence=1, attempt=1, priority=5, worker="w", until=now, lease_for=timedelta(seconds=7),
            started_at=now, created_at=now,
        )  # fmt: skip
        settlement = Settlement(
            seq=1, job="j", fence=1, state=State.COMPLETED, attempt=1, counts_as="completed", ran=900, waited=1000
        )
        workers = [TrendStats(store, RealWorld()) for store in stores]
        for _ in range(5):
            for worker in workers:
                worker.note(lease, settlement)
            await asyncio.gather(*(worker.merge() for worker in workers))
        for worker in workers:
            while worker.has_news:
                await worker.merge()
        minutes = await read_minutes(stores[0], now, now + timedelta(hours=1))
        for found in (
            list((await read_cumulative(stores[0])).values()),
            [s for m in minutes.values() for s in m.values()],
        ):
            together = merged(found)
            assert (sum(together.runs.values()), together.waited, together.met) == (15, 15_000, 15)
        await stores[0].insert([JobSpec(id="a", task="t"), JobSpec(id="b", task="t")])
        await asyncio.gather(*(take_snapshot(store, now) for store in stores))
        [series] = differences(await read_count_minutes(stores[1], now - timedelta(minutes=2), now)).values()
        assert series[("default", "t", 5)].submitted == series[("default", "t", 5)].waiting == 2
    finally:
        for store in stores:
            await store.close()

"""An urgent job starts before the jobs that a busy worker holds, and does not wait for an exchange under way."""

from __future__ import annotations

import asyncio
import time

from worker_processes import until
from worker_stores import meddled
from worker_tasks import anap, app

from daybreak.worker.supervisor.batch_size import BatchSize
from daybreak.worker.supervisor.claim_loop import MAX_URGENT_JOBS, VERY_SLOW_EXCHANGE


def test_an_urgent_job_does_not_wait_for_the_exchange_under_way(stage, began, monkeypatch):
    """Exchanges with a slow store, of which one hangs: the urgent job begins before that comes back, and exchanges are
    kept short from then on."""
    hangs, hung, found = False, [], []
    monkeypatch.setattr(BatchSize, "expect_urgent", lambda _: found.append(True))

    async def before(name, *request):
        if name != "exchange" or request[0].claim is None:
            return
        await asyncio.sleep(2 * VERY_SLOW_EXCHANGE)
        while hangs and request[0].claim.limit > MAX_URGENT_JOBS:
            hung.append(request[0])
            await asyncio.sleep(0.01)

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        busy = anap.using(priority="low").submit_many([{"seconds": 0.001} for _ in range(1500)])
        with app.worker(processes=1, lease_for="30s"):
            busy[300].wait(timeout="60s")
            hangs = True
            until(lambda: hung, "an exchange hangs")
            urgent = anap.using(priority="critical").submit(0.0)
            began(urgent)
            assert found
            hangs = False
            for job in busy:
                job.wait(timeout="60s")
            assert urgent.result(timeout="30s") == 0.0


def test_work_that_is_not_urgent_does_not_shorten_exchanges(stage, monkeypatch):
    hurried, found = [], []
    monkeypatch.setattr(BatchSize, "expect_urgent", lambda _: found.append(True))

    async def before(name, *request):
        if name == "exchange" and (claim := request[0].claim) is not None:
            hurried.extend([claim] * (claim.limit == MAX_URGENT_JOBS))
            await asyncio.sleep(2 * VERY_SLOW_EXCHANGE)

    low = anap.using(priority="low")
    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        busy = low.submit_many([{"seconds": 0.001} for _ in range(1500)])
        with app.worker(processes=1, lease_for="30s"):
            busy[300].wait(timeout="60s")
            while not hurried:
                low.submit(0.0)
            for job in busy:
                job.wait(timeout="60s")
    assert not found


def test_an_urgent_claim_asks_only_for_jobs_that_find_a_slot(stage):
    """One slot and slow exchanges: whatever is announced, the worker claims no more than it can start."""
    asked = []

    async def before(name, *request):
        if name == "exchange" and request[0].claim is not None:
            asked.append(request[0].claim.limit)
            await asyncio.sleep(2 * VERY_SLOW_EXCHANGE)

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        with app.worker(processes=1, async_jobs=1, lease_for="30s"):
            # Longer than 0.1 s: of shorter jobs a child may hold one ahead while exchanges are very slow.
            jobs = [anap.submit(0.15) for _ in range(8)]
            for job in jobs:
                job.wait(timeout="60s")
    assert asked
    assert max(asked) <= 1, "more than there is a slot for"


def test_an_idle_worker_claims_announced_work_once(stage, began):
    """Even with slow exchanges: an exchange that carries nothing else needs no urgent claim beside it."""
    asked = []

    async def before(name, *request):
        if name == "exchange" and (claim := request[0].claim) is not None and claim.call.startswith("async"):
            asked.append(claim.limit)
            await asyncio.sleep(6 * VERY_SLOW_EXCHANGE)

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        with app.worker(processes=1, lease_for="30s"):
            for _ in range(10):
                anap.submit(0.0).result(timeout="30s")
            times = []
            for _ in range(4):
                until_still(asked)
                asked.clear()
                job = anap.submit(0.2)
                began(job)
                times.append(len(asked))
                job.result(timeout="30s")
    assert min(times) == 1, times  # the slow poll of the file may add one to some of them


def until_still(asked, seconds=0.3):
    """Wait until no more requests come: then the last job is settled."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        if len(asked) != seen:
            seen, since = len(asked), time.monotonic()
        time.sleep(0.01)

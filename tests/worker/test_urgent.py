"""An urgent job goes before what a busy worker has in hand, and does not wait for what it is asking for."""

from __future__ import annotations

import asyncio
import time

from worker_deeds import anap, app
from worker_stores import meddled

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
            urgent = anap.using(priority="critical").submit(0.0)
            began(urgent)
            assert hung, "nothing hung: the test shows nothing"
            assert found
            hangs = False
            for job in busy:
                job.wait(timeout="60s")
            assert urgent.result(timeout="30s") == 0.0


def test_work_that_is_not_urgent_keeps_no_exchange_short(stage, monkeypatch):
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


def test_what_is_claimed_in_haste_finds_a_slot(stage):
    """One slot, and exchanges that take their time: whatever is announced, no more is taken than can be begun."""
    asked = []

    async def before(name, *request):
        if name == "exchange" and request[0].claim is not None:
            asked.append(request[0].claim.limit)
            await asyncio.sleep(2 * VERY_SLOW_EXCHANGE)

    with meddled(app, stage.folder / "jobs.db") as store:
        store.before = before
        with app.worker(processes=1, async_jobs=1, lease_for="30s"):
            jobs = [anap.submit(0.05) for _ in range(12)]
            for job in jobs:
                job.wait(timeout="60s")
            history = [event.kind for job in jobs for event in job.history()]
    assert asked
    assert max(asked) <= 1, "more than there is a slot for"
    assert history.count("released") == 0


def test_an_idle_worker_asks_once_for_what_is_announced(stage, began):
    """However long exchanges last: beside one that carries nothing else there is nothing to hurry before."""
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
    assert min(times) == 1, times  # the slow look at the file may fall into some of them


def until_still(asked, seconds=0.3):
    """Nothing more is asked: the last that ended is settled."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        if len(asked) != seen:
            seen, since = len(asked), time.monotonic()
        time.sleep(0.01)

"""An urgent job goes before what a busy worker has in hand, and does not wait for what it is asking for."""

from __future__ import annotations

import asyncio

from worker_deeds import anap, app
from worker_stores import meddled

from daybreak.worker.tending import HURRIED, LONG


def test_an_urgent_job_does_not_wait_for_the_exchange_under_way(stage, began):
    """Exchanges with a slow store, of which one hangs: the urgent job begins before that comes back."""
    hangs, hung = False, []

    async def before(name, *request):
        if name != "exchange" or request[0].claim is None:
            return
        await asyncio.sleep(2 * LONG)
        while hangs and request[0].claim.limit > HURRIED:
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
            hangs = False
            for job in busy:
                job.wait(timeout="60s")
            assert urgent.result(timeout="30s") == 0.0

"""Deliveries that are duplicated, reordered and delayed at random, on both sides: one accepted outcome each."""

from __future__ import annotations

from collections import Counter

from sqs_faults import Faulty
from sqs_tasks import add

from daybreak import values

JOBS = 60


async def test_duplicated_reordered_and_delayed_messages_count_once(stage):
    faults = []

    def wrap(client):
        faults.append(Faulty(client, seed=len(faults), duplicate=0.1, delay=0.01))
        return faults[-1]

    await stage.dispatcher(wrap=wrap, depth=20)
    for _ in range(2):
        await stage.worker(wrap=wrap, processes=3)
    jobs = [await add.asubmit(n, 1) for n in range(JOBS)]
    ended = [await stage.ended(job) for job in jobs]
    assert [values.decode(job.result) for job in ended] == [n + 1 for n in range(JOBS)]
    store = await stage.store()
    kinds = Counter([event.kind for job in jobs for event in await store.history(job.id)])
    assert kinds["completed"] == JOBS
    assert sum(fault.duplicated for fault in faults) > 5, "nothing was duplicated: the test showed nothing"


async def test_the_requests_per_job_are_counted_and_bounded(stage):
    dispatcher, _ = await stage.dispatcher(depth=20)
    worker, _ = await stage.worker(processes=10)
    for job in [await add.asubmit(n, 1) for n in range(JOBS)]:
        await stage.ended(job)
    queues = dispatcher._queues.requests + worker._source._queues.requests
    sent = sum(queues[name] for name in ("send_message_batch", "delete_message_batch"))
    # A task, a started and an outcome, each sent and deleted: six if nothing were sent together.
    assert sent <= 6 * JOBS + 20
